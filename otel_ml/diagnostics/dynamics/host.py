"""Statistics of a tensor in the host's memory, as numbers: there is no device to wait for."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

__all__ = ["Statistics", "statistics"]

_GRAIN = 32_768
"""Elements up to which NumPy is quicker: fewer layers to a call, and torch has one thread, too, up to here
(`at::internal::GRAIN_SIZE`)."""

_HAS_NUMPY = find_spec("numpy") is not None  # torch comes without it, too


class Statistics(NamedTuple):
    """Of the elements of one tensor; all 0 where it has none.

    Attributes:
        square: sum of their squares.
        zeros: how many are 0.
        largest: the largest absolute one; NaN if any is.
    """

    square: float
    zeros: int
    largest: float


def statistics(tensor: Any) -> Statistics:
    """Look at a tensor that needs no gradient.

    Examples:
        >>> import torch
        >>> statistics(torch.tensor([3.0, 0.0, -4.0]))
        Statistics(square=25.0, zeros=1, largest=4.0)
    """
    import torch

    size = tensor.numel()
    if not size:
        return Statistics(0.0, 0, 0.0)
    is_plain = type(tensor) is torch.Tensor and tensor.dtype in (torch.float32, torch.float64)
    return _by_numpy(tensor.numpy()) if _HAS_NUMPY and is_plain and size <= _GRAIN else _by_torch(tensor)


def _by_numpy(array: Any) -> Statistics:
    import numpy as np

    flat = array.ravel()
    wide = flat.astype("float64")
    largest = max(abs(float(flat.max())), abs(float(flat.min())))
    return Statistics(float(wide.dot(wide)), flat.size - int(np.count_nonzero(flat)), largest)


def _by_torch(tensor: Any) -> Statistics:
    import torch

    zeros = tensor.numel() - int(torch.count_nonzero(tensor))
    # A norm of order infinity takes four to six times as long as both ends.
    ends = torch.aminmax(tensor.abs() if tensor.is_complex() else tensor)
    largest = max(abs(float(ends.min)), abs(float(ends.max)))
    return Statistics(float(torch.linalg.vector_norm(tensor, dtype=_wide(tensor))) ** 2, zeros, largest)


def _wide(tensor: Any) -> Any:
    import torch

    return torch.complex128 if tensor.is_complex() else torch.float64
