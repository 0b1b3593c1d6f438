"""Numbers that a program has gathered, as an array of numpy, to be computed with on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_array"]


def as_array(value: Any) -> NDArray[Any]:
    """Return a number, a list, an array or a tensor as an array; of a tensor on a device it waits for the value."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    tensor = value.detach().cpu()
    # numpy has no bfloat16, and sums float16 in itself.
    return np.asarray(tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor)
