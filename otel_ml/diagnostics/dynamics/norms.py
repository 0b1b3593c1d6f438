"""Norms of gradients and parameters that are right when ranks hold copies, shards, or both; without a collective.

Each rank knows the sum of squares of what it holds. Of R ranks, `c` hold the same copy of a tensor, so a rank records

    s = √(Σ over its tensors of (R / c) · ‖tensor‖²)

as the two values +s and -s, reduced by `std`: the service's pooled standard deviation of them is √(mean of s²), which
is the norm of the whole. Where a rank is missing, the norm is estimated from the others, and `otel_ml/writers_missing`
says so.
"""

from __future__ import annotations

import re
from typing import Any

import otel_ml
from otel_ml._internal.record.values import Recordable
from otel_ml.diagnostics.dynamics.device_norms import DeviceNorms
from otel_ml.diagnostics.dynamics.held_tensors import Copies, Held, parts_of
from otel_ml.diagnostics.dynamics.host_norms import statistics
from otel_ml.diagnostics.dynamics.nonfinite import NonFiniteWatch
from otel_ml.diagnostics.dynamics.norm_measures import measures, own_measure
from otel_ml.diagnostics.dynamics.shards import is_distributed
from otel_ml.diagnostics.dynamics.shards import world_size as size_of_world
from otel_ml.diagnostics.dynamics.sums import bad_ones, both_roots, own_values, sums_of, values_of
from otel_ml.diagnostics.first_names import first_names
from otel_ml.diagnostics.measure import Measures
from otel_ml.diagnostics.small_tensors import Sums, statistics_of_small, sums_of_small
from otel_ml.diagnostics.tensor_statistics import prepare
from otel_ml.exceptions import ConfigError
from otel_ml.never_raises import never_raises

__all__ = ["Norms"]


class Norms:
    r"""Records norms of a model's gradients and parameters; call it once a step, after backward.

    On a GPU a kernel looks at all of them at once, and is compiled by this class where the model is on the device
    already. What it found is read later: nothing waits. A gradient that is not finite is reported once, with the first
    step and tensor, when its value has arrived.

    Args:
        model: a `torch.nn.Module`, or pairs of name and parameter. DTensors (FSDP2, tensor parallel) say themselves
            how they are sharded.
        each: regular expression of the parameters that also get a norm of their own, `grad/norm/<parameter>`; by
            default none. On a device they come with what is looked at anyway.
        copies: how many ranks hold the same values of a plain tensor, a number or a function of name and tensor; by
            default all of torch.distributed's ranks, as under DDP. 1 where each rank has its own shard; `each` then
            gives `grad/sum_of_squares/<parameter>`, since nothing tells how many shards there are.
        world_size: ranks that record; by default torch.distributed's.
        every: steps between two records of parameters, which change slowly: `record_parameters()` does nothing at
            other steps. By default each call records; of a device it reads all parameters once.

    Raises:
        ConfigError: `every` is not a number of steps; `each` is not a regular expression, or fits no parameter: the
            message names those that exist.

    Examples:
        ```python
        norms = Norms(model, each=r"layers\.0\.")
        loss.backward()
        norms.record_gradients()
        norms.record_parameters()
        ```
    """

    def __init__(
        self,
        model: Any,
        *,
        each: str | None = None,
        copies: Copies = None,
        world_size: int | None = None,
        every: int = 1,
    ) -> None:
        named = model.named_parameters() if hasattr(model, "named_parameters") else model
        # Kept: `named_parameters()` goes through all modules of a model each time.
        self._named: list[tuple[str, Any]] = list(named)
        self._each = frozenset(_matching(each, [name for name, _ in self._named], _problems_of(every)))
        self._copies = copies
        self._every = every
        self._world = size_of_world() if world_size is None else world_size
        self._watch = NonFiniteWatch()
        self._gradients = DeviceNorms("grad", self._each, self._world, self._watch)
        self._parameters = DeviceNorms("param", self._each, self._world, None)
        # Ranks that hold copies have a gradient all or none: there nothing stays nothing, not 0.
        is_cut = copies is not None or any(is_distributed(tensor) for _, tensor in self._named)
        self._has_parts = self._world > 1 and is_cut
        prepare(tensor for _, tensor in self._named if getattr(tensor, "is_cuda", False))

    @never_raises
    def record_gradients(self) -> None:
        """Record `grad/…` of the parameters that have a gradient.

        A rank without any records a norm of 0 where ranks hold different parts, and nothing where they hold copies.
        """
        gradients = [gradient for _, parameter in self._named if (gradient := parameter.grad) is not None]
        if not self._record_alike("grad", gradients) and not self._record_again(self._gradients, gradients):
            self._record(self._gradients, self._named_gradients())

    @never_raises
    def record_parameters(self) -> None:
        """Record `param/…` of all parameters, as they are now; with `every=`, at the steps that it divides.

        Called before `optimizer.step()` they are those that the step has used, as `inspect/<layer>/weight/…` are.
        """
        if self._every > 1 and (otel_ml.current_step() or 0) % self._every:
            return
        tensors = [parameter for _, parameter in self._named]
        if not self._record_alike("param", tensors) and not self._record_again(self._parameters, tensors):
            self._record(self._parameters, self._named)

    def _record_alike(self, kind: str, tensors: list[Any]) -> bool:
        """Record small tensors of the host that have equally many copies, or return False where they are not that.

        All in one call each to look, to sum and to record: with cold caches a step of Python for each tensor, and a
        record for each metric, took three times as long.
        """
        copies = self._world if self._copies is None else self._copies
        # A norm of a parameter's own, or copies that differ from tensor to tensor, need the tensors one by one.
        if self._each or not tensors or callable(copies) or not copies:
            return False
        sums = sums_of_small(tensors, 1.0 / copies)
        if sums is None:
            return False
        _record_sums(measures(kind), sums, {"norm": both_roots(sums.square * self._world)})
        # The names are asked for only now: nearly all steps have nothing bad.
        if sums.bad and kind == "grad" and (found := statistics_of_small(tensors)) is not None:
            names = [name for name, _ in self._named_gradients()]
            self._watch.found([names[place] for place in bad_ones(found.largest)], otel_ml.current_step())
        return True

    def _named_gradients(self) -> list[tuple[str, Any]]:
        return [(name, parameter.grad) for name, parameter in self._named if parameter.grad is not None]

    def _record_again(self, there: DeviceNorms, tensors: list[Any]) -> bool:
        # The places of what is missing are looked for only where the number of tensors is the one before.
        return there.knows(tensors) and there.record_again(tensors, self._places(there, tensors))

    def _places(self, there: DeviceNorms, tensors: list[Any]) -> tuple[int, ...]:
        """Return the places of parameters of which there are no such tensors."""
        if len(tensors) == len(self._named) or there is self._parameters:
            return ()
        return tuple(place for place, (_, parameter) in enumerate(self._named) if parameter.grad is None)

    def _record(self, there: DeviceNorms, named: list[tuple[str, Any]]) -> None:
        parts = list(parts_of(named, self._copies, self._world))
        by_device: dict[Any, list[tuple[Held, Any]]] = {}
        for part in parts:
            by_device.setdefault(part[1].device, []).append(part)
        # Popped, so that what is left are devices.
        here = sum(
            self._record_host(there.kind, by_device.pop(device)) for device in [*by_device] if device.type == "cpu"
        )
        if by_device:
            found = [there.record(device, some) for device, some in by_device.items()]
            there.record_norm(found, here)
            there.remember([tensor for _, tensor in named], self._places(there, named), parts)
        elif parts:
            measures(there.kind)["norm"].record(both_roots(here * self._world))
        elif not named and self._has_parts:
            # Its part of the norm is 0, as that of an empty shard: a norm is estimated for ranks that are missing.
            _record_sums(measures(there.kind), Sums(0.0, 0.0, 0.0, 0.0, 0), {"norm": both_roots(0.0)})

    def _record_host(self, kind: str, parts: list[tuple[Held, Any]]) -> float:
        """Record all but the norm of tensors that lie in memory, and return the sum of squares."""
        found = statistics([local for _, local in parts])
        held = [one for one, _ in parts]
        sums = sums_of(found, held)
        rows = measures(kind)
        _record_sums(rows, sums, {})
        if kind == "grad":
            self._watch.found([held[place].name for place in bad_ones(found.largest)], otel_ml.current_step())
        for one, square in zip(held, found.squares, strict=True):
            if one.name in self._each:
                own_measure(rows, one).record(own_values(one, square))
        return sums.square


def _record_sums(rows: Measures, sums: Sums, several: dict[str, Recordable]) -> None:
    rows.record(values_of(sums, several), several=several)


def _problems_of(every: Any) -> list[str]:
    if isinstance(every, int) and every >= 1:
        return []
    return [f"Norms: every: expected a number of steps from 1 on, got {every!r}."]


def _matching(each: str | None, names: list[str], problems: list[str]) -> list[str]:
    found: list[str] = []
    try:
        found = [] if each is None else [name for name in names if re.search(each, name)]
        if each is not None and not found:
            # With the names that there are: a model's wrappers put prefixes before them, such as `module.`.
            problems.append(f"Norms: each: {each!r} fits no parameter. There are: {first_names(names)}.")
    except re.error as error:
        problems.append(f"Norms: each: expected a regular expression, got {each!r}: {error}.")
    if problems:
        raise ConfigError(*problems)
    return found
