"""The same statistics by operations of torch: where no kernel runs, and of tensors that kernels do not look at."""

from __future__ import annotations

from functools import cache
from typing import Any

from otel_ml._internal.devices.copy_to_device import copy_to_device

__all__ = ["by_foreach", "one_by_one"]


def by_foreach(tensors: list[Any]) -> Any:
    """Return three rows as `look` and `fold` do, in a few operations whatever there are of tensors.

    All are plain and of floating point, on one device. Of a torch without the type of a norm, they are looked at one by
    one.
    """
    import torch

    if not _has_foreach():
        return one_by_one(tensors)
    with torch.no_grad():
        nothing = tensors[0].new_zeros(1)  # a norm of order infinity of no elements is an error
        full = [tensor if tensor.numel() else nothing for tensor in tensors]
        # The norm of order 0 is how many are not 0.
        square, largest, count = (
            torch.stack(torch._foreach_norm(full, order, dtype=torch.float64))  # noqa: SLF001 - torch's own optimizers do
            for order in (2.0, float("inf"), 0.0)
        )
        sizes = _on_device([tensor.numel() for tensor in tensors], count)
        return torch.stack([square.square(), largest, sizes - count])


@cache
def _has_foreach() -> bool:
    import torch

    try:
        torch._foreach_norm([torch.zeros(1, device="cpu")], 2.0, dtype=torch.float64)  # noqa: SLF001
    except (AttributeError, RuntimeError, TypeError):
        return False
    return True


def one_by_one(tensors: list[Any]) -> Any:
    """Return the three rows of tensors of any type, some operations each; on MPS they have 32 bits."""
    import torch

    with torch.no_grad():
        sizes = _on_device([tensor.numel() for tensor in tensors], tensors[0])
        # One dtype for all, as they are stacked.
        norms = torch.stack([_norm(tensor).to(sizes.dtype) for tensor in tensors])
        nonzero = torch.stack([torch.count_nonzero(tensor) for tensor in tensors])
        largest = torch.stack([_largest(tensor).to(sizes.dtype) for tensor in tensors])
        return torch.stack([norms.square(), largest, sizes - nonzero])


def _norm(tensor: Any) -> Any:
    import torch

    # Of a narrow type its sum of squares would be narrow, too; a wide one is not narrowed.
    return torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))


def _largest(tensor: Any) -> Any:
    import torch

    if not tensor.numel():
        return tensor.new_zeros((), dtype=torch.float32)
    # A norm of order infinity takes four to six times as long as both ends.
    ends = torch.aminmax(tensor.abs() if tensor.is_complex() else tensor)
    return torch.stack(tuple(ends)).abs().max()


def _on_device(numbers: list[int], like: Any) -> Any:
    import torch

    dtype = torch.float32 if like.device.type == "mps" else torch.float64
    return copy_to_device(torch.tensor(numbers, dtype=dtype, device="cpu"), like)
