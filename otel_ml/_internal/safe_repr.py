"""Values of a program in sentences: short, and whatever their own text does."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["exact_text", "safe_repr", "text_of"]

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
"""Of an object that says nothing else of itself: it differs on every rank, and would look like a conflict."""

_MOST_ITEMS = 1000
"""Items of which a text is made; more take seconds."""

_TEXT = 10_000


def safe_repr(value: Any, most: int = 80) -> str:
    """Return the `repr` of a value, cut; of what is on a device, or large, what it is: to read it takes its time."""
    try:
        if isinstance(value, (str, bytes)):
            # Cut before: of a text of megabytes the whole repr would be made.
            return repr(value[: most + 1])[:most]
        if type(value).__module__ not in {"builtins", "numpy"} and getattr(value, "shape", None) is not None:
            return f"a {type(value).__name__} of shape {tuple(value.shape)!r}"[:most]
        if hasattr(value, "__len__") and len(value) > _MOST_ITEMS:
            return f"a {type(value).__name__} of {len(value)} items"
        return _ADDRESS.sub(">", repr(value)[:_TEXT])[:most]
    except Exception:  # noqa: BLE001 (somebody's __repr__)
        return f"<{type(value).__name__}>"


def exact_text(value: object) -> str:
    """Return the `str` of a value; of a text its characters.

    `str()` and `format()` of a member of an `Enum` of texts say its class, where the text is a name.
    """
    return str.__str__(value) if isinstance(value, str) else str(value)


def text_of(value: object) -> str:
    """Return the `exact_text` of a value, or its type where it has none."""
    try:
        return _ADDRESS.sub(">", exact_text(value)[:_TEXT])
    except Exception:  # noqa: BLE001 (somebody's __str__)
        return f"<{type(value).__name__}>"
