"""Values of `wandb.config` that W&B shows otherwise than by their text."""

from __future__ import annotations

from datetime import date
from typing import Any

__all__ = ["as_wandb_shows"]


def as_wandb_shows(value: Any) -> Any:
    """Return a class or a function by its name, a date in ISO 8601, bytes as text; anything else as it is.

    The text of a function has its address, which is another one in each process.

    Examples:
        >>> as_wandb_shows(dict), as_wandb_shows(slice(2))
        ('builtins.dict', {'slice_start': None, 'slice_step': None, 'slice_stop': 2})
    """
    match value:
        case date():  # a date with the time of day is one, too
            return value.isoformat()
        case bytes():
            return value.decode(errors="replace")
        case slice():
            return {"slice_start": value.start, "slice_step": value.step, "slice_stop": value.stop}
    # An instance has the `__module__` of its class, and no `__qualname__`.
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    is_named = callable(value) and isinstance(module, str) and isinstance(name, str)
    return f"{module}.{name}" if is_named else value
