"""How numbers on a device get to their places in a buffer there: one launch for each type of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["copy_all", "is_fused"]

_FUSED = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""Types that `_foreach_copy_` reads in one launch."""

_SINGLY = (
    "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip

is_fused: dict[Any, bool] = {}
"""By type: whether it is one of `_FUSED`."""


def copy_all(torch: Any, places: Sequence[Any], tensors: Sequence[Any]) -> None:
    """Copy tensors to their places.

    Raises:
        TypeError: elements of one are not numbers.
    """
    kinds = {tensor.dtype: None for tensor in tensors}
    for kind in kinds:
        if kind not in is_fused:
            _check(kind)
    if len(kinds) == 1:
        _copy(torch, places, tensors)
        return
    for kind in kinds:
        chosen = [place for place, tensor in enumerate(tensors) if tensor.dtype is kind]
        _copy(torch, [places[place] for place in chosen], [tensors[place] for place in chosen])


def _copy(torch: Any, places: Sequence[Any], tensors: Sequence[Any]) -> None:
    """Copy tensors of one type: one launch for about a hundred of them, where torch has a kernel for it."""
    if len(tensors) > 1 and is_fused[tensors[0].dtype] and hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(places, tensors)
        return
    for place, tensor in zip(places, tensors, strict=True):
        place.copy_(tensor, non_blocking=True)


def _check(kind: Any) -> bool:
    """Return whether many tensors of a type are copied at once.

    Raises:
        TypeError: its elements are not numbers: complex, quantized.
    """
    name = str(kind).removeprefix("torch.")
    if name not in _FUSED and name not in _SINGLY:
        raise TypeError(f"has elements of {kind}")
    found = is_fused[kind] = name in _FUSED
    return found
