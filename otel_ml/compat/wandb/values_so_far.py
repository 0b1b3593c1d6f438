"""The values of each name so far, as a summary may ask for them: also those of before it does."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from otel_ml.compat.tracking.as_number import plain_float

__all__ = ["Extremes", "ValuesSoFar"]

_ROWS = 256
"""Rows that are taken into account together, which costs a third of one after the other."""


@dataclass(slots=True)
class Extremes:
    """The values of one name; where a NaN is among them, it is the smallest, the largest and the mean, as in W&B."""

    count: int = 0
    total: float = 0.0
    min: float = math.inf
    max: float = -math.inf
    first: float = math.nan
    last: float = math.nan

    def add(self, values: Sequence[float]) -> None:
        """Take the next ones, at least one."""
        self.first = self.first if self.count else values[0]
        self.last = values[-1]
        self.count += len(values)
        self.total += sum(values)
        if any(map(math.isnan, values)):
            self.min = self.max = math.nan
        elif not math.isnan(self.min):
            low, high = min(values), max(values)
            self.min, self.max = min(self.min, low), max(self.max, high)

    def of(self, wanted: str, goal: str | None) -> float:
        """Return one of them; the best is what the goal says, or the smallest."""
        if wanted == "best":
            return self.max if goal == "maximize" else self.min
        return self.total / self.count if wanted == "mean" else float(getattr(self, wanted))


class ValuesSoFar:
    """Of all names. A row costs what its copy does; it is looked at with others, or when a name is asked for."""

    def __init__(self) -> None:
        self._known: dict[str, Extremes] = {}
        self._rows: deque[Mapping[str, Any]] = deque()

    def add(self, row: Mapping[str, Any]) -> None:
        """Take the numbers of a row."""
        self._rows.append({**row})
        if len(self._rows) >= _ROWS:
            self._look()

    def of(self, name: str) -> Extremes | None:
        """Return those of a name; None where it has no value."""
        self._look()
        return self._known.get(name)

    def _look(self) -> None:
        columns: defaultdict[str, list[Any]] = defaultdict(list)
        for row in self._taken():
            for name, value in row.items():
                columns[name].append(value)
        for name, given in columns.items():
            numbers = given if {float}.issuperset(map(type, given)) else _floats(given)
            if numbers:
                self._known.setdefault(name, Extremes()).add(numbers)

    def _taken(self) -> Iterator[Mapping[str, Any]]:
        # Each once, also where two threads look at a time, and a third adds one.
        with suppress(IndexError):
            while True:
                yield self._rows.popleft()


def _floats(given: Sequence[Any]) -> list[float]:
    found = map(plain_float, given)
    return [number for number in found if number is not None]
