"""Statistics of tensors in the host's memory, as numbers: there is no device to wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

from otel_ml.diagnostics.small_tensors import Statistics, statistics_of_small

__all__ = ["statistics"]

GRAIN = 32_768
"""Elements up to which a tensor is looked at together with others: torch has one thread, too, up to here
(`at::internal::GRAIN_SIZE`)."""

_TOGETHER = 2**17
"""Elements of small tensors that are looked at together: what training has pushed out of the caches makes each call
cost some 5 µs, whatever it works on. They are copied, so there is a bound: 1 MiB."""

_HAS_NUMPY = find_spec("numpy") is not None  # torch comes without it, too


def statistics(tensors: list[Any]) -> Statistics:
    """Look at tensors that need no gradient, each by itself.

    Examples:
        >>> import torch
        >>> statistics([torch.tensor([3.0, 0.0, -4.0]), torch.tensor([])])
        Statistics(sizes=[3, 0], squares=[25.0, 0.0], zeros=[1, 0], largest=[4.0, 0.0])
    """
    return statistics_of_small(tensors) or _statistics(tensors)


_One = tuple[int, float, int, float]


def _statistics(tensors: Sequence[Any]) -> Statistics:
    found: list[_One | None] = [None] * len(tensors)
    for group in _small_ones(tensors):
        for index, one in zip(group, _by_numpy([tensors[index].numpy() for index in group]), strict=True):
            found[index] = one
    # In the order of `tensors`, whichever way each was looked at.
    every = [_by_torch(tensor) if one is None else one for tensor, one in zip(tensors, found, strict=True)]
    return Statistics(*map(list, zip(*every, strict=True))) if every else Statistics([], [], [], [])


def _small_ones(tensors: Sequence[Any]) -> Iterator[list[int]]:
    """Yield the places of small plain tensors, as many as are looked at together."""
    import torch

    if not _HAS_NUMPY:
        return
    group: list[int] = []
    space = _TOGETHER
    for index, tensor in enumerate(tensors):
        size = tensor.numel()
        # A subclass may keep its elements elsewhere, and numpy knows no bfloat16.
        if 0 < size <= GRAIN and type(tensor) is torch.Tensor and tensor.dtype in (torch.float32, torch.float64):
            if group and size > space:
                yield group
                group, space = [], _TOGETHER
            group.append(index)
            space -= size
    if group:
        yield group


def _by_numpy(arrays: list[Any]) -> Iterator[_One]:
    import numpy as np

    # In double: squares of float32 overflow from 2·10¹⁹ on.
    flat = np.concatenate([array.reshape(-1) for array in arrays], dtype="float64")
    sizes = [array.size for array in arrays]
    ends = [*accumulate(sizes)]
    begins = [0, *ends[:-1]]
    parts = [flat[begin:end] for begin, end in zip(begins, ends, strict=True)]
    squares = [float(part.dot(part)) for part in parts]
    # One look at all spares most steps one at each.
    has_zeros = np.count_nonzero(flat) < flat.size
    zeros = [part.size - int(np.count_nonzero(part)) for part in parts] if has_zeros else [0] * len(parts)
    # No part is empty: of such a one `reduceat` would give the first of the next.
    largest = np.maximum.reduceat(np.abs(flat, out=flat), begins).tolist()
    return zip(sizes, squares, zeros, largest, strict=True)


def _by_torch(tensor: Any) -> _One:
    import torch

    size = tensor.numel()
    if not size:
        return 0, 0.0, 0, 0.0
    # A norm of order infinity takes four to six times as long as both ends.
    ends = torch.aminmax(tensor.abs() if tensor.is_complex() else tensor)
    largest = max(abs(float(ends.min)), abs(float(ends.max)))
    square = float(torch.linalg.vector_norm(tensor, dtype=_wide(tensor))) ** 2
    return size, square, size - int(torch.count_nonzero(tensor)), largest


def _wide(tensor: Any) -> Any:
    import torch

    return torch.complex128 if tensor.is_complex() else torch.float64
