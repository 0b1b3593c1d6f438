"""Mean, minimum and maximum of many values, on the device that has them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from otel_ml._internal.devices.copy_to_device import copy_to_device
from otel_ml.diagnostics.small_tensors import Extent, extent_of_small

__all__ = ["Extent", "extent_of", "one_a_sample"]

_PLAIN = frozenset({bool, float, int})


def extent_of(values: Any, mask: Any = None) -> Extent | None:
    """Return the extent of `values`, those where `mask` is true; None where there are none.

    A mask on a device that selects nothing gives a weight of 0 and an infinite minimum and maximum: to know it before
    would be to wait for the device.

    Args:
        values: a tensor of any shape, an array, or numbers.
        mask: of the same shape; true (or not 0) counts.
    """
    if hasattr(values, "detach"):
        found = extent_of_small(values) if mask is None else None
        return _of_tensor(values.detach(), mask) if found is None else found
    # Once: an iterator would be empty for the second look.
    numbers = list(_flat(values))
    if mask is not None:
        numbers = [number for number, counts in zip(numbers, _flat(mask), strict=True) if counts]
    if not numbers:
        return None
    if any(number != number for number in numbers):  # over one that is not the first, `min()` and `max()` pass
        return Extent(math.nan, len(numbers), math.nan, math.nan)
    return Extent(sum(numbers) / len(numbers), len(numbers), min(numbers), max(numbers))


def one_a_sample(values: Any) -> Any:
    """Return numbers, an array or a tensor of any shape as floats; one on a device as a tensor of one dimension."""
    if type(values) is list and {*map(type, values)} <= _PLAIN:
        return [*map(float, values)]  # the usual case: a seventh of what follows
    if hasattr(values, "detach") and values.device.type != "cpu":
        return values.detach().reshape(-1).float()
    return list(_flat(values))


def _of_tensor(values: Any, mask: Any) -> Extent | None:
    if mask is not None:
        mask = _beside(values, mask)
    if values.device.type == "cpu":
        return _of_host(values if mask is None else values[mask.bool()])
    values = values.float()
    if mask is None:
        return Extent(values.mean(), values.numel(), values.min(), values.max()) if values.numel() else None
    # Masked and not indexed: the size of an index would have to be waited for.
    chosen = mask.bool()
    count = chosen.sum()
    total = values.masked_fill(~chosen, 0.0).sum()
    low = values.masked_fill(~chosen, float("inf")).min()
    high = values.masked_fill(~chosen, float("-inf")).max()
    return Extent(total / count.clamp(min=1), count, low, high)


def _beside(values: Any, mask: Any) -> Any:
    """Return a mask as a tensor where the values are; one of the host is not waited for on its way."""
    import torch

    if not hasattr(mask, "detach"):
        mask = torch.as_tensor(mask, device="cpu")
    if mask.device.type != "cpu" or values.device.type == "cpu":
        return mask
    return copy_to_device(mask, values)


def _of_host(values: Any) -> Extent | None:
    import torch

    if not values.numel():
        return None
    if values.dtype != torch.float64:
        values = values.float()
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
