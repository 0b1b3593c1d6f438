"""Mean, minimum and maximum of many values, on the device that has them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from otel_ml.diagnostics.copies import has_room

__all__ = ["Extent", "copied", "extent_of"]

_MOST = 32_768
"""Elements that torch takes no other threads for (`at::internal::GRAIN_SIZE`): the background thread's would come on
top of training's."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What ranks pool: numbers, or 0-d tensors that are not waited for."""

    mean: Any
    count: Any
    min: Any
    max: Any


def extent_of(values: Any, mask: Any = None) -> Extent | None:
    """Return the extent of `values`, those where `mask` is true; None where there are none.

    A mask on a device that selects nothing gives a weight of 0 and an infinite minimum and maximum: to know it before
    would be to wait for the device.

    Args:
        values: a tensor of any shape, an array, or numbers.
        mask: of the same shape; true (or not 0) counts.
    """
    if hasattr(values, "detach"):
        return _of_tensor(values.detach(), mask)
    numbers = list(_flat(values))
    if mask is not None:
        numbers = [number for number, counts in zip(numbers, _flat(mask), strict=True) if counts]
    if not numbers:
        return None
    return Extent(sum(numbers) / len(numbers), len(numbers), min(numbers), max(numbers))


def copied(values: Any, mask: Any = None) -> Any:
    """Return a copy of what `extent_of()` would look at, or None where that is not small, or not a tensor that is here.

    Examples:
        >>> import torch
        >>> copied(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[True, False], [False, True]]))
        tensor([1., 4.])
        >>> copied([1, 2])
    """
    torch = sys.modules.get("torch")
    if torch is None or type(values) is not torch.Tensor or not has_room():
        return None
    if not values.is_cpu or values.layout is not torch.strided or values.numel() > _MOST:
        return None
    values = values.detach()
    return (values if mask is None else values[mask.bool()]).to(torch.float32, copy=True)


def _of_tensor(values: Any, mask: Any) -> Extent | None:
    values = values.float()
    if values.device.type == "cpu":
        return _of_host(values if mask is None else values[mask.bool()])
    if mask is None:
        return Extent(values.mean(), values.numel(), values.min(), values.max()) if values.numel() else None
    chosen = mask.bool()
    count = chosen.sum()
    total = values.masked_fill(~chosen, 0.0).sum()
    low = values.masked_fill(~chosen, float("inf")).min()
    high = values.masked_fill(~chosen, float("-inf")).max()
    return Extent(total / count.clamp(min=1), count, low, high)


def _of_host(values: Any) -> Extent | None:
    if not values.numel():
        return None
    low, high = values.aminmax()
    return Extent(float(values.mean()), values.numel(), float(low), float(high))


def _flat(values: Any) -> Iterator[float]:
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, Iterable):
        for value in values:
            yield from _flat(value)
    else:
        yield float(values)
