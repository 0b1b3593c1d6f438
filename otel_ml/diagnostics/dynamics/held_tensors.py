"""What a rank holds of named tensors, how many ranks hold the same, and of which nothing can be said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from otel_ml.diagnostics.dynamics.shards import copies_of, held, is_distributed, shards_of
from otel_ml.warn_once import reporter

__all__ = ["Copies", "Held", "locals_of", "parts_of"]

_SPARSE = (
    "The norm of {!r} leaves it out: it is sparse, and to know what is stored twice in it would be to wait for the "
    "device."
)

_NO_NUMBERS = (
    "The norm of {!r} leaves it out, and any like it: it holds {}, not the numbers that it stands for. Leave it out of "
    "Norms(…) where it is quantized and does not train."
)

Copies = int | Callable[[str, Any], int] | None


class Held(NamedTuple):
    """What this rank holds of one tensor, without its elements.

    Attributes:
        name: of the tensor.
        size: elements that are stored.
        share: 1 / copies of it.
        shards: parts it is cut into; None if that is not known.
        absent: elements that a sparse one does not store, zeros all.
    """

    name: str
    size: int
    share: float
    shards: int | None
    absent: int = 0


def parts_of(named: Iterable[tuple[str, Any]], copies: Copies, world: int) -> Iterator[tuple[Held, Any]]:
    """Yield what this rank holds of each, with its elements; what is left out is reported once.

    Args:
        named: names and tensors.
        copies: how many ranks hold the same of a plain one; by default all.
        world: ranks that record.
    """
    codes: tuple[str, Any] | None = None
    for name, tensor in named:
        is_cut = is_distributed(tensor)
        same = _copies_of(name, tensor, copies, world, is_cut=is_cut)
        if same:
            (local,) = locals_of([tensor]) if is_cut else (tensor,)
            # Of a plain tensor whose copies the user counts, nothing tells into how many parts it is cut.
            shards = shards_of(tensor) if is_cut else 1 if copies is None else None
            # Detached: what is computed of it does not become a part of training's graph.
            local = _numbers(local.detach())
            if local is None:
                codes = codes or (name, tensor.dtype)
                continue
            if not local.is_sparse:
                yield Held(name, local.numel(), 1.0 / same, shards), local
            elif local.is_cpu:
                stored = local.coalesce().values()
                yield Held(name, stored.numel(), 1.0 / same, shards, local.numel() - stored.numel()), stored
            else:
                reporter.say("sparse-tensor", _SPARSE.format(name))
    if codes is not None:  # a model may have hundreds: the first stands for all
        reporter.say("quantized-tensor", _NO_NUMBERS.format(*codes))


def locals_of(tensors: Iterable[Any]) -> list[Any]:
    """Return this rank's parts of distributed tensors, and plain ones as they are."""
    import torch

    with torch.no_grad():  # else what it returns begins a graph of its own
        return [held(tensor) if is_distributed(tensor) else tensor for tensor in tensors]


def _copies_of(name: str, tensor: Any, copies: Copies, world: int, *, is_cut: bool) -> int:
    if callable(copies):
        return copies(name, tensor)
    if not is_cut:
        # A plain tensor does not say who else holds it: as under DDP, all ranks do.
        return world if copies is None else copies
    found = copies_of(tensor, world)
    if not found:
        reporter.say(
            "partial-tensor",
            f"The norm of {name!r} leaves it out: its ranks hold parts of a sum. Record it after the reduction.",
        )
    return found


def _numbers(local: Any) -> Any:
    """Return elements that torch computes with, or None of codes: whole numbers, or several in a byte.

    Those of 8 bits are only stored, and made wider.
    """
    dtype = local.dtype
    if dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1):
        return local
    if dtype.is_floating_point and str(dtype).startswith("torch.float8"):
        return local.float()
    return None
