"""Norms of gradients and parameters that are right when ranks hold copies, shards, or both; without a collective.

Each rank knows the sum of squares of what it holds. Of R ranks, `c` hold the same copy of a tensor, so a rank records

    s = √(Σ over its tensors of (R / c) · ‖tensor‖²)

as the two values +s and -s, reduced by `std`: the service's pooled standard deviation of them is √(mean of s²), which
is the norm of the whole. Where a rank is missing, the norm is estimated from the others, and `otel_ml/writers_missing`
says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from otel_ml._internal.axes import current_step
from otel_ml._internal.values import Recordable
from otel_ml.diagnostics.dynamics.host import statistics
from otel_ml.diagnostics.dynamics.nonfinite import NonFiniteWatch
from otel_ml.diagnostics.dynamics.shards import copies_of, held, is_distributed, shards_of
from otel_ml.diagnostics.dynamics.shards import world_size as size_of_world
from otel_ml.diagnostics.dynamics.sums import (
    DeviceSums,
    Held,
    Later,
    LaterNorm,
    bad_ones,
    both_roots,
    own_record,
    plain_of,
    sums_of,
    weighted_of,
)
from otel_ml.diagnostics.harmless import harmless
from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.diagnostics.small_tensors import Sums, statistics_of_small, sums_of_small
from otel_ml.diagnostics.tensor_statistics import Arrival, Layout, TensorStatistics, is_plain, layout_of, prepare
from otel_ml.exceptions import ConfigError
from otel_ml.once import guard

__all__ = ["Norms", "measures"]

_SPARSE = (
    "The norm of {!r} leaves it out: it is sparse, and to know what is stored twice in it would be to wait for the "
    "device."
)

_NO_NUMBERS = (
    "The norm of {!r} leaves it out, and any like it: it holds {}, not the numbers that it stands for. Leave it out of "
    "Norms(…) where it is quantised and does not train."
)

Copies = int | Callable[[str, Any], int] | None


@cache
def measures(kind: str) -> Measures:
    """Return what is recorded of `grad` or `param`, by the last part of its name."""
    return Measures(
        Measure(f"{kind}/norm", "1", ("std",), "L2 norm over all ranks: the deviation of ±√(ranks/copies)·‖shard‖."),
        Measure(f"{kind}/sum_of_squares", "1", ("sum",), "Sum of squares over all ranks, each copy once."),
        Measure(f"{kind}/mean_square", "1", ("mean",), "Mean square of the elements, over all ranks."),
        Measure(f"{kind}/abs_max", "1", ("max",), "Largest absolute element, over all ranks."),
        Measure(f"{kind}/zeros", "{element}", ("sum",), "Elements that are 0, over all ranks, each copy once."),
        Measure(f"{kind}/zero_fraction", "1", ("mean",), "Elements that are 0, per element."),
        Measure(f"{kind}/nonfinite", "{tensor}", ("max",), "Tensors of a rank with a NaN or Inf."),
        prefix=f"{kind}/",
    )


class _Known(NamedTuple):
    """What is recorded of tensors of a device that are what they were before: only their elements have changed.

    Attributes:
        layout: of the tensors.
        device: of all.
        present: which of all parameters' they are.
        placements: of each that is distributed.
        held: of each, what is no element.
        statistics: by which they are looked at.
    """

    layout: Layout
    device: Any
    present: list[bool]
    placements: list[Any]
    held: list[Held]
    statistics: TensorStatistics


class Norms:
    r"""Records norms of a model's gradients and parameters; call it once a step, after backward.

    Sums stay on the device and are read later: nothing waits. A gradient that is not finite is said once, with the
    first step and tensor, when its value has arrived.

    Args:
        model: a `torch.nn.Module`, or pairs of name and parameter. DTensors (FSDP2, tensor parallel) say themselves
            how they are sharded.
        each: regular expression of the parameters that also get a norm of their own, `grad/norm/<parameter>`; by
            default none. Each is a few small operations on the device and one copy.
        copies: how many ranks hold the same values of a plain tensor, a number or a function of name and tensor; by
            default all of torch.distributed's ranks, as under DDP. 1 where each rank has its own shard; `each` then
            gives `grad/sum_of_squares/<parameter>`, since nothing tells how many shards there are.
        world_size: ranks that record; by default torch.distributed's.

    Raises:
        ConfigError: `each` is no regular expression, or fits no parameter: the message names those that exist.

    Examples:
        ```python
        norms = Norms(model, each=r"layers\.0\.")
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
        # Ranks that hold copies have a gradient all or none: there nothing stays nothing, not 0.
        is_cut = copies is not None or any(is_distributed(tensor) for _, tensor in self._named)
        self._has_parts = self._world > 1 and is_cut

    @harmless
    def record_gradients(self) -> None:
        """Record `grad/…` of the parameters that have a gradient.

        A rank without any records a norm of 0 where ranks hold different parts, and nothing where they hold copies.
        """
        gradients = [gradient for _, parameter in self._named if (gradient := parameter.grad) is not None]
        if not self._record_alike("grad", gradients):
            self._record("grad", self._named_gradients())
        self._watch.look()

    @harmless
    def record_parameters(self) -> None:
        """Record `param/…` of all parameters, as they are now.

        Called before `optimizer.step()` they are those that the step has used, as `inspect/<layer>/weight/…` are.
        """
        if not self._record_alike("param", [parameter for _, parameter in self._named]):
            self._record("param", self._named)

    def _record_alike(self, kind: str, tensors: list[Any]) -> bool:
        """Record small tensors of the host that have equally many copies, or return False where they are not that.

        All in one call each to look, to sum and to record: with cold caches a step of Python for each tensor, and a
        record for each metric, took three times as long.
        """
        copies = self._world if self._copies is None else self._copies
        if self._each or not tensors or callable(copies) or not copies:
            return False
        sums = sums_of_small(tensors, 1.0 / copies)
        if sums is None:
            return False
        _record_sums(measures(kind), sums, {"norm": _both_roots(sums.square * self._world)})
        if sums.bad and kind == "grad" and (found := statistics_of_small(tensors)) is not None:
            names = [name for name, _ in self._named_gradients()]
            self._watch.found([names[place] for place in _bad(found.largest)])
        return True

    def _named_gradients(self) -> list[tuple[str, Any]]:
        return [(name, parameter.grad) for name, parameter in self._named if parameter.grad is not None]

    def _record(self, kind: str, named: list[tuple[str, Any]]) -> None:
        rows = measures(kind)
        by_device: dict[Any, list[_Part]] = {}
        for part in self._parts(named):
            by_device.setdefault(part.local.device, []).append(part)
        squares = [
            self._record_host(kind, parts) if device.type == "cpu" else self._record_device(rows, parts)
            for device, parts in by_device.items()
        ]
        if squares:
            _record_norm(rows["norm"], _total(squares) * self._world)
        elif not named and self._has_parts:
            # Its part of the norm is 0, as that of an empty shard: a norm is estimated for ranks that are missing.
            _record_sums(rows, Sums(0.0, 0.0, 0.0, 0.0, 0), {"norm": _both_roots(0.0)})

    def _parts(self, named: Iterable[tuple[str, Any]]) -> Iterator[_Part]:
        codes: tuple[str, Any] | None = None
        for name, tensor in named:
            is_cut = is_distributed(tensor)
            copies = self._copies_of(name, tensor, is_cut=is_cut)
            if copies:
                local = _held(tensor) if is_cut else tensor
                # Of a plain tensor whose copies the user counts, nothing tells into how many parts it is cut.
                shards = shards_of(tensor) if is_cut else 1 if self._copies is None else None
                local = _numbers(local.detach())
                if local is None:
                    codes = codes or (name, tensor.dtype)
                    continue
                if not local.is_sparse:
                    yield _Part(name, local, 1.0 / copies, shards)
                elif local.is_cpu:
                    stored = local.coalesce().values()
                    yield _Part(name, stored, 1.0 / copies, shards, local.numel() - stored.numel())
                else:
                    guard.say("sparse-tensor", _SPARSE.format(name))
        if codes is not None:  # a model may have hundreds: the first stands for all
            guard.say("quantised-tensor", _NO_NUMBERS.format(*codes))

    def _copies_of(self, name: str, tensor: Any, *, is_cut: bool) -> int:
        if callable(self._copies):
            return self._copies(name, tensor)
        if not is_cut:
            return self._world if self._copies is None else self._copies
        copies = copies_of(tensor, self._world)
        if not copies:
            guard.say(
                "partial-tensor",
                f"The norm of {name!r} leaves it out: its ranks hold parts of a sum. Record it after the reduction.",
            )
        return copies

    def _record_host(self, kind: str, parts: list[_Part]) -> float:
        """Do as `_record_device()` with tensors that lie in memory: each is looked at once, the rest is arithmetic."""
        found = statistics([part.local for part in parts])
        shares = [part.share for part in parts]
        absent = [part.absent for part in parts]
        bad = _bad(found.largest)
        sums = Sums(
            sum(map(mul, map(add, found.sizes, absent), shares)),
            sum(map(mul, found.squares, shares)),
            sum(map(mul, map(add, found.zeros, absent), shares)),
            _largest(found.largest),
            len(bad),
        )
        rows = measures(kind)
        _record_sums(rows, sums, {})
        if kind == "grad":
            self._watch.found([parts[place].name for place in bad])
        for part, square in zip(parts, found.squares, strict=True):
            if part.name in self._each:
                _record_own(rows, part, square)
        return sums.square

    def _record_device(self, rows: Measures, parts: list[_Part]) -> Any:
        """Record all but the norm, and return the sum of squares, each copy once in the job."""
        import torch

        # A shard may be empty, and counts with a norm of 0: the ranks of a norm are those that record it.
        norms = torch.stack([_norm(part.local) for part in parts])
        shares = _on_device([part.share for part in parts], norms)
        squares = norms.to(shares.dtype).square()
        mine = (squares * shares).sum()
        rows["sum_of_squares"].record(mine)
        rows["nonfinite"].record((~torch.isfinite(norms)).sum())
        self._record_elements(rows, parts, shares, mine)
        if rows["norm"].name.startswith("grad/"):
            self._watch.add([part.name for part in parts], norms)
        for index, part in enumerate(parts):
            if part.name in self._each:
                _record_own(rows, part, squares[index])
        return mine

    def _record_elements(self, rows: Measures, parts: list[_Part], shares: Any, square: Any) -> None:
        import torch

        elements = sum(part.local.numel() * part.share for part in parts)
        if not elements:
            return
        nonzero = torch.stack([torch.count_nonzero(part.local) for part in parts])
        zeros = _on_device([part.local.numel() for part in parts], shares) - nonzero  # one operation for all tensors
        zeros = (zeros * shares).sum()
        rows["mean_square"].record(square / elements, weight=elements)
        rows["abs_max"].record(torch.stack([end for part in parts for end in _ends(part.local)]).abs().max())
        rows["zeros"].record(zeros)
        rows["zero_fraction"].record(zeros / elements, weight=elements)


def _held(tensor: Any) -> Any:
    import torch

    with torch.no_grad():  # else what it returns begins a graph of its own
        return held(tensor)


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


def _norm(local: Any) -> Any:
    import torch

    # Of a narrow type its sum of squares would be narrow, too; a wide one is not narrowed.
    return torch.linalg.vector_norm(local, dtype=torch.promote_types(local.dtype, torch.float32))


def _ends(local: Any) -> tuple[Any, ...]:
    """Return the smallest and the largest element; of complex ones their absolute values; nothing of none."""
    import torch

    if not local.numel():
        return ()
    return tuple(torch.aminmax(local.abs() if local.is_complex() else local))


def _on_device(numbers: list[float], like: Any) -> Any:
    import torch

    dtype = torch.float32 if like.device.type == "mps" else torch.float64
    if like.is_cuda:
        return torch.tensor(numbers, dtype=dtype).pin_memory().to(like.device, non_blocking=True)
    return like.new_tensor(numbers, dtype=dtype)


def _record_own(rows: Measures, part: _Part, square: Any) -> None:
    """Record the norm of one parameter; its sum of squares where it is not known how many parts it has."""
    row = rows["norm" if part.shards else "sum_of_squares"]
    own = Measure(f"{row.name}/{part.name}", row.unit, row.reduce, row.description)
    if part.shards:
        _record_norm(own, square * part.shards)
    else:
        own.record(square * part.share)


def _total(squares: list[Any]) -> Any:
    """Return the sum over devices, on the first of them that is not the host."""
    on_devices = [square for square in squares if hasattr(square, "to")]
    moved = [square.to(on_devices[0].device, non_blocking=True) for square in on_devices]
    return sum(square for square in squares if not hasattr(square, "to")) + sum(moved)


def _record_sums(rows: Measures, sums: Sums, several: dict[str, Recordable]) -> None:
    values = {"sum_of_squares": sums.square, "nonfinite": float(sums.bad)}
    if sums.elements:
        values["abs_max"] = sums.largest
        values["zeros"] = sums.zeros
        several["mean_square"] = sums.square / sums.elements, sums.elements
        several["zero_fraction"] = sums.zeros / sums.elements, sums.elements
    rows.record(values, several=several)


def _bad(largest: list[float]) -> list[int]:
    """Return the places of tensors with a NaN or Inf."""
    return [place for place, one in enumerate(largest) if not one < math.inf]


def _largest(values: list[float]) -> float:
    """Return the largest, NaN if any is: `max()` passes over one that is not the first."""
    return math.nan if any(value != value for value in values) else max(values)


def _record_norm(measure: Measure, square: Any) -> None:
    if isinstance(square, float):
        measure.record(_both_roots(square))
        return
    import torch

    on_device = square.sqrt()
    measure.record(torch.stack([on_device, -on_device]))


def _both_roots(square: float) -> list[float]:
    root = math.sqrt(square)
    return [root, -root]


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
