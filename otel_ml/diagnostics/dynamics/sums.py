"""Sums over a rank's tensors: at once of those in the host's memory, later of those on a device.

Of a device their statistics arrive in one copy; all that is recorded of them is arithmetic of the thread that reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import add, mul
from typing import Any

from otel_ml._internal.device_tensor import Deferred
from otel_ml.diagnostics.dynamics.held_tensors import Held
from otel_ml.diagnostics.dynamics.nonfinite import NonFiniteWatch
from otel_ml.diagnostics.dynamics.norm_measures import own_name
from otel_ml.diagnostics.small_tensors import Statistics, Sums
from otel_ml.diagnostics.tensor_statistics.copy_to_host import CopyToHost

__all__ = [
    "DeviceSums",
    "Later",
    "LaterNorm",
    "bad_ones",
    "both_roots",
    "own_values",
    "sums_of",
    "values_of",
]


def sums_of(found: Statistics, held: Sequence[Held]) -> Sums:
    """Return sums over tensors, each copy once in the job."""
    shares = [one.share for one in held]
    absent = [one.absent for one in held]
    return Sums(
        # map() with `mul` and `add` spares a step of Python for each tensor.
        sum(map(mul, map(add, found.sizes, absent), shares)),
        sum(map(mul, found.squares, shares)),
        sum(map(mul, map(add, found.zeros, absent), shares)),
        _largest(found.largest),
        len(bad_ones(found.largest)),
    )


def bad_ones(largest: Iterable[float]) -> list[int]:
    """Return the places of tensors with a NaN or Inf."""
    # `not one < inf` is true for NaN, too.
    return [place for place, one in enumerate(largest) if not one < math.inf]


def _largest(values: Sequence[float]) -> float:
    """Return the largest, NaN if any is: `max()` passes over one that is not the first."""
    return math.nan if any(value != value for value in values) else max(values)


def both_roots(square: float) -> list[float]:
    """Return what a norm is pooled from."""
    root = math.sqrt(square)
    return [root, -root]


def values_of(sums: Sums, several: dict[str, Any]) -> dict[str, float]:
    """Return what is recorded as it is, and put into `several` what has the number of elements as its weight.

    Of no elements some has no value.
    """
    values = {"sum_of_squares": sums.square, "nonfinite": float(sums.bad)}
    if sums.elements:
        values["abs_max"] = sums.largest
        values["zeros"] = sums.zeros
        several["mean_square"] = sums.square / sums.elements, sums.elements
        several["zero_fraction"] = sums.zeros / sums.elements, sums.elements
    return values


def own_values(one: Held, square: float) -> list[float]:
    """Return the values of `own_name()`, of the sum of squares of what this rank holds."""
    return both_roots(square * one.shards) if one.shards else [square * one.share]


class DeviceSums:
    """What is recorded of the tensors of one device, once their statistics are there.

    Args:
        arrival: rows as `TensorStatistics.of()` has them.
        held: what they are of.
        own: names of those that are recorded by themselves.
        watch: is told which are not finite; None where nobody asks.
        step: at which they were computed.
    """

    __slots__ = ("_arrival", "_held", "_own", "_records", "_step", "_watch", "square")

    def __init__(
        self,
        arrival: CopyToHost,
        held: Sequence[Held],
        own: frozenset[str],
        watch: NonFiniteWatch | None,
        step: int | None,
    ) -> None:
        self._arrival = arrival
        self._held = held
        self._own = own
        self._watch = watch
        self._step = step
        self._records: dict[str, list[Any]] | None = None
        self.square: float = 0.0

    def ready(self) -> bool:
        """Whether `records()` would return at once."""
        return self._records is not None or self._arrival.ready()

    def records(self) -> dict[str, list[Any]]:
        """Return what is recorded, by the last part of its name; then `square` is the sum of squares, too."""
        if self._records is None:
            # Made once, by whichever metric is read first: all others take theirs from it.
            self._records = self._made(self._arrival.numbers())
        return self._records

    def _made(self, numbers: list[float]) -> dict[str, list[Any]]:
        held, n = self._held, len(self._held)
        # Three rows × tensors.
        squares, largest, zeros = numbers[:n], numbers[n : 2 * n], [*map(int, numbers[2 * n :])]
        sums = sums_of(Statistics([one.size for one in held], squares, zeros, largest), held)
        self.square = sums.square
        if sums.bad and self._watch is not None:
            self._watch.found([held[place].name for place in bad_ones(largest)], self._step)
        pairs = [(one, square) for one, square in zip(held, squares, strict=True) if one.name in self._own]
        own = {own_name(one): own_values(one, square) for one, square in pairs}
        several: dict[str, Any] = {}
        values = values_of(sums, several)
        return {name: [value] for name, value in {**values, **several}.items()} | own


class Later(Deferred):
    """What one metric records of a device's tensors."""

    __slots__ = ("_name", "_sums")

    def __init__(self, sums: DeviceSums, name: str) -> None:
        self._sums = sums
        self._name = name

    def ready(self) -> bool:
        """Whether `read()` would return at once."""
        return self._sums.ready()

    def read(self) -> list[Any]:
        """Return the records: none where the metric has no value."""
        return self._sums.records().get(self._name, [])


class LaterNorm(Deferred):
    """The norm over what lies on devices and on the host."""

    __slots__ = ("_here", "_sums", "_world")

    def __init__(self, sums: Sequence[DeviceSums], here: float, world: int) -> None:
        self._sums = sums
        self._here = here
        self._world = world

    def ready(self) -> bool:
        """Whether `read()` would return at once."""
        return all(one.ready() for one in self._sums)

    def read(self) -> list[float]:
        """Return the norm and its negative."""
        # Their squares are known once the records are made.
        for one in self._sums:
            one.records()
        return both_roots((sum(one.square for one in self._sums) + self._here) * self._world)
