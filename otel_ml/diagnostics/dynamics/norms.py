"""Norms of gradients and parameters that are right when ranks hold copies, shards, or both; without a collective.

Each rank knows the sum of squares of what it holds. Of R ranks, `c` hold the same copy of a tensor, so a rank records

    s = √(Σ over its tensors of (R / c) · ‖tensor‖²)

as the two values +s and -s, reduced by `std`: the service's pooled standard deviation of them is √(mean of s²), which is
the norm of the whole. Where a rank is missing, it is estimated from the others, and `otel_ml/writers_missing` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from otel_ml._internal.guard import guard
from otel_ml.diagnostics.dynamics.nonfinite import NonFiniteWatch
from otel_ml.diagnostics.dynamics.shards import copies_of, held
from otel_ml.diagnostics.dynamics.shards import world_size as size_of_world
from otel_ml.diagnostics.measure import Measure
from otel_ml.exceptions import ConfigError

__all__ = ["Norms", "measures"]

Copies = int | Callable[[str, Any], int] | None


def measures(kind: str) -> dict[str, Measure]:
    """Return what is recorded of `grad` or `param`, by the last part of its name."""
    return {
        measure.name.rpartition("/")[2]: measure
        for measure in (
            Measure(
                f"{kind}/norm", "1", ("std",), "L2 norm over all ranks: the deviation of ±√(ranks/copies)·‖shard‖."
            ),
            Measure(f"{kind}/sum_of_squares", "1", ("sum",), "Sum of squares over all ranks, each copy once."),
            Measure(f"{kind}/mean_square", "1", ("mean",), "Mean square of the elements, over all ranks."),
            Measure(f"{kind}/abs_max", "1", ("max",), "Largest absolute element, over all ranks."),
            Measure(f"{kind}/zeros", "{element}", ("sum",), "Elements that are 0, over all ranks, each copy once."),
            Measure(f"{kind}/zero_fraction", "1", ("mean",), "Elements that are 0, per element."),
            Measure(f"{kind}/nonfinite", "{tensor}", ("max",), "Tensors of a rank with a NaN or Inf."),
        )
    }


class Norms:
    """Records norms of a model's gradients and parameters; call it once a step, after backward.

    Sums stay on the device and are read later: nothing waits. A gradient that is not finite is said once, with the
    first step, rank and tensor, when its value has arrived.

    Args:
        model: a `torch.nn.Module`, or pairs of name and parameter. DTensors (FSDP2, tensor parallel) say themselves
            how they are sharded.
        each: regular expression of the parameters that also get a norm of their own, `grad/norm/<parameter>`; by
            default none. `".*"` is every one, at some 10 µs each.
        copies: how many ranks hold the same values of a plain tensor, a number or a function of name and tensor; by
            default all of torch.distributed's ranks, as under DDP. 1 where each rank has its own shard.
        world_size: ranks that record; by default torch.distributed's.

    Raises:
        ConfigError: `each` is no regular expression, or fits no parameter: the message names those that exist.

    Examples:
        ```python
        norms = Norms(model, each=r"layers\\.0\\.")
        loss.backward()
        norms.record_gradients()
        norms.record_parameters()
        ```
    """

    def __init__(
        self, model: Any, *, each: str | None = None, copies: Copies = None, world_size: int | None = None
    ) -> None:
        named = model.named_parameters() if hasattr(model, "named_parameters") else model
        self._named: list[tuple[str, Any]] = list(named)
        self._each = frozenset(_matching(each, [name for name, _ in self._named]))
        self._copies = copies
        self._world = size_of_world() if world_size is None else world_size
        self._watch = NonFiniteWatch()

    def record_gradients(self) -> None:
        """Record `grad/…` of the parameters that have a gradient."""
        self._record("grad", ((name, parameter.grad) for name, parameter in self._named if parameter.grad is not None))

    def record_parameters(self) -> None:
        """Record `param/…` of all parameters."""
        self._record("param", self._named)

    def _record(self, kind: str, named: Iterable[tuple[str, Any]]) -> None:
        import torch

        rows = measures(kind)
        by_device: dict[Any, list[tuple[str, Any, float]]] = {}
        with torch.no_grad():
            for name, local, share in self._local(named):
                by_device.setdefault(local.device, []).append((name, local, share))
            squares = []  # with each copy once in the job
            for held in by_device.values():
                squares.append(self._record_device(rows, held))
            if squares:
                total = sum(square.to(squares[0].device, non_blocking=True) for square in squares)
                _record_norm(rows["norm"], total * self._world)
            if kind == "grad":
                self._watch.look()

    def _local(self, named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any, float]]:
        """Yield (name, what this rank holds, 1 / copies)."""
        for name, tensor in named:
            local, copies = held(tensor), self._copies_of(name, tensor)
            if copies and local.numel():  # a shard may be empty
                yield name, local.detach(), 1.0 / copies

    def _copies_of(self, name: str, tensor: Any) -> int:
        if self._copies is not None and not hasattr(tensor, "placements"):
            return self._copies(name, tensor) if callable(self._copies) else self._copies
        copies = copies_of(tensor, self._world)
        if not copies:
            guard.say(
                "partial-tensor",
                f"The norm of {name!r} leaves it out: its ranks hold parts of a sum. Record it after the reduction.",
            )
        return copies

    def _record_device(self, rows: dict[str, Measure], held: list[tuple[str, Any, float]]) -> Any:
        import torch

        locals_ = [local for _, local, _ in held]
        norms = torch.stack([torch.linalg.vector_norm(local, dtype=torch.float32) for local in locals_])
        largest = torch.stack([torch.linalg.vector_norm(local, ord=float("inf")).float() for local in locals_])
        zeros = torch.stack([local.numel() - torch.count_nonzero(local) for local in locals_])
        shares = torch.tensor([share for _, _, share in held], dtype=torch.float64)
        shares = shares.pin_memory().to(norms.device, non_blocking=True) if norms.is_cuda else shares.to(norms.device)
        count = sum(local.numel() for local in locals_)
        squares = norms.double().square() if norms.device.type != "mps" else norms.square()
        mine = (squares * shares).sum()
        rows["sum_of_squares"].record(mine)
        rows["mean_square"].record(squares.sum() / count, weight=count)
        rows["abs_max"].record(largest.max())
        rows["zeros"].record((zeros * shares).sum())
        rows["zero_fraction"].record(zeros.sum() / count, weight=count)
        rows["nonfinite"].record((~torch.isfinite(norms)).sum())
        names = [name for name, _, _ in held]
        if rows["norm"].name.startswith("grad/"):
            self._watch.add(names, norms)
        for index, (name, _, share) in enumerate(held):
            if name in self._each:
                row = rows["norm"]
                own = Measure(f"{row.name}/{name}", row.unit, row.reduce, row.description)
                _record_norm(own, squares[index] * (share * self._world))
        return mine


def _record_norm(measure: Measure, square: Any) -> None:
    import torch

    root = square.sqrt()
    measure.record(torch.stack([root, -root]))


def _matching(each: str | None, names: list[str]) -> list[str]:
    if each is None:
        return []
    try:
        found = [name for name in names if re.search(each, name)]
    except re.error as error:
        raise ConfigError(f"Norms: each: expected a regular expression, got {each!r}: {error}.") from error
    if not found:
        raise ConfigError(f"Norms: each: {each!r} fits no parameter. There are: {_some(names)}.")
    return found


def _some(names: list[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
