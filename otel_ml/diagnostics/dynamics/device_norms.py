"""Norms of tensors on devices: a few launches on the training thread, and arithmetic on the one that reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import otel_ml
from otel_ml._internal.run_scope import NOW
from otel_ml.diagnostics.dynamics.held_tensors import Held, locals_of
from otel_ml.diagnostics.dynamics.nonfinite import NonFiniteWatch
from otel_ml.diagnostics.dynamics.norm_measures import measures, own_measure, own_name
from otel_ml.diagnostics.dynamics.shards import is_distributed
from otel_ml.diagnostics.dynamics.sums import DeviceSums, Later, LaterNorm
from otel_ml.diagnostics.measure import Measures
from otel_ml.diagnostics.tensor_statistics import CopyToHost, Layout, TensorStatistics, is_plain, layout_of

__all__ = ["DeviceNorms"]

_OF_ALL = ("sum_of_squares", "nonfinite", "mean_square", "abs_max", "zeros", "zero_fraction")


class _Known(NamedTuple):
    """What need not be found out again of tensors that are what they were: only their elements have changed.

    Attributes:
        layout: of what this rank holds of them.
        device: of all.
        absent: places of parameters that had no such tensor.
        types: of each tensor.
        placements: of each that is distributed.
        held: of each.
        names: of what is recorded of them.
    """

    layout: Layout
    device: Any
    absent: tuple[int, ...]
    types: list[type]
    placements: list[Any]
    held: list[Held]
    names: list[str]


class DeviceNorms:
    """Records `grad/…` or `param/…` of tensors on devices.

    Args:
        kind: `grad` or `param`.
        own: names of the parameters that get a norm of their own.
        world: ranks that record.
        watch: is told which tensors are not finite.
    """

    def __init__(self, kind: str, own: frozenset[str], world: int, watch: NonFiniteWatch | None) -> None:
        self.kind = kind
        self._own = own
        self._world = world
        self._watch = watch
        self._rows = Measures(*measures(kind).values(), prefix=f"{kind}/")
        self._statistics: dict[Any, TensorStatistics] = {}
        self._known: _Known | None = None

    def knows(self, tensors: Sequence[Any]) -> bool:
        """Return whether `record_again()` may be worth it."""
        return self._known is not None and len(tensors) == len(self._known.held)

    def record_again(self, tensors: list[Any], absent: tuple[int, ...]) -> bool:
        """Record tensors that are as they were the time before; return False where they are not, or not known."""
        known = self._known
        if known is None or absent != known.absent:
            return False
        # Done, with nothing recorded: looking at the tensors again would change nothing.
        if NOW.off:
            return True
        # Layouts are of local tensors; a tensor that was cut otherwise since has other copies.
        if known.placements:
            if [*map(type, tensors)] != known.types or _placements(tensors) != known.placements:
                return False
            tensors = locals_of(tensors)
        seen = layout_of(tensors)
        if seen is None or seen[0] != known.layout:
            return False
        found = self._arriving(self._statistics[known.device].of(tensors, seen=seen), known.held)
        # All lies on one device, so nothing of the host is added.
        norm = {"norm": LaterNorm([found], 0.0, self._world)}
        self._rows.record_later({**norm, **{name: Later(found, name) for name in known.names}})
        return True

    def remember(self, tensors: list[Any], absent: tuple[int, ...], parts: list[tuple[Held, Any]]) -> None:
        """Know the tensors of which all `parts` lie on one device and are looked at by kernels."""
        self._known = None
        locals_ = [local for _, local in parts]
        # A part that was left out, or that operations look at, has to be told apart anew each time.
        if len(parts) != len(tensors) or not all(map(is_plain, locals_)):
            return
        # None also where they lie on several devices: each would need a copy of its own.
        if (seen := layout_of(locals_)) is not None:
            types = [*map(type, tensors)]
            held = [one for one, _ in parts]
            self._known = _Known(
                seen[0], locals_[0].device, absent, types, _placements(tensors), held, self._names(held)
            )

    def record(self, device: Any, parts: list[tuple[Held, Any]]) -> DeviceSums:
        """Record all but the norm of what lies on one device."""
        # Plain ones first: `TensorStatistics.of()` takes those for kernels, and the others apart.
        parts = sorted(parts, key=lambda part: not is_plain(part[1]))
        locals_ = [local for _, local in parts]
        first = next((place for place, local in enumerate(locals_) if not is_plain(local)), len(parts))
        statistics = self._statistics.setdefault(device, TensorStatistics())
        held = [one for one, _ in parts]
        found = self._arriving(statistics.of(locals_[:first], locals_[first:]), held)
        self._rows.record_later({name: Later(found, name) for name in self._names(held)})
        return found

    def record_norm(self, found: list[DeviceSums], here: float) -> None:
        """Record the norm over devices and over what lies on the host, of which this is the sum of squares."""
        self._rows.record_later({"norm": LaterNorm(found, here, self._world)})

    def _arriving(self, arrival: CopyToHost, held: list[Held]) -> DeviceSums:
        return DeviceSums(arrival, held, self._own, self._watch, otel_ml.current_step())

    def _names(self, held: list[Held]) -> list[str]:
        """Return the last parts of the names of what is recorded."""
        own = [one for one in held if one.name in self._own]
        for one in own:
            self._rows.setdefault(own_name(one), own_measure(self._rows, one))
        return [*_OF_ALL, *map(own_name, own)]


def _placements(tensors: list[Any]) -> list[Any]:
    return [tensor.placements for tensor in tensors if is_distributed(tensor)]
