"""What TensorBoard's writers make of a value and of a step, before they write it."""

from __future__ import annotations

import math
from typing import Any

from otel_ml.compat.tracking.pictures import as_array

__all__ = ["is_empty", "sound", "step_of"]


def is_empty(values: Any) -> bool:
    """Whether an array, a tensor or a list has no element."""
    shape = getattr(values, "shape", None)
    return math.prod(shape) == 0 if shape is not None else hasattr(values, "__len__") and not len(values)


def sound(samples: Any) -> Any:
    """Return samples (n,), or (n, 2) as tensorboardX takes them of two channels; torch's writer has one channel alone.

    Raises:
        ValueError: they are neither; both originals refuse them.
    """
    found = as_array(samples).squeeze()
    if found.ndim > 1 and tuple(found.shape[1:]) != (2,):
        raise ValueError(f"samples of shape {tuple(found.shape)}, expected (n,), (1, n) or (n, 2)")
    # squeeze() makes of one sample a number without dimensions.
    return found if found.ndim > 1 else found.reshape(-1)


def step_of(step: Any) -> int | None:
    """Return a step as it stands in TensorBoard's files, which have whole ones; None for what is not one from 0 on.

    Examples:
        >>> step_of(1.7), step_of("3"), step_of(-1), step_of("three")
        (1, 3, None, None)
    """
    try:
        cut = int(step)
    except Exception:  # noqa: BLE001 (somebody's object, and torch raises RuntimeError)
        return None
    return cut if cut >= 0 else None
