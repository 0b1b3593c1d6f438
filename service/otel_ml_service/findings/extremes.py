"""The slowest and the fastest ranks of each timer over a stretch of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.evidence_matrix import MAX_CELLS
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["COLUMNS", "Extreme", "Extremes"]

COLUMNS = ("timer", "which", "place", "rank", "s per step", "steps")
"""Of the table; place 1 of `slowest` is the maximum with its rank, place 1 of `fastest` the minimum."""

Floats = npt.NDArray[np.float64]


class Extreme(NamedTuple):
    """A rank's mean over the steps in which it had the timer; ties go to the lower rank."""

    timer: str
    which: str
    place: int
    rank: int
    seconds: float
    steps: int


class Extremes:
    """Adds up what each rank took in each timer.

    Examples:
        >>> extremes = Extremes(1)
        >>> extremes.add(StepTimers((0, 1, 2), ("forward",), np.array([[1.0], [3.0], [2.0]])))
        >>> [(found.which, found.rank, found.seconds) for found in extremes.take()]
        [('slowest', 1, 3.0), ('fastest', 0, 1.0)]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._begin()

    def _begin(self) -> None:
        self._ranks: dict[int, int] = {}
        self._phases: dict[str, int] = {}
        self._sums: Floats = np.zeros((0, 0))
        self._counts: Floats = np.zeros((0, 0))

    def add(self, timers: StepTimers) -> None:
        """Take a step."""
        for rank in timers.ranks:
            if (len(self._ranks) + 1) * max(len(self._phases), 1) <= MAX_CELLS:
                self._ranks.setdefault(rank, len(self._ranks))
        for phase in timers.phases:
            if (len(self._phases) + 1) * max(len(self._ranks), 1) <= MAX_CELLS:
                self._phases.setdefault(phase, len(self._phases))
        # So many rows and columns behind those that are there, of zeros.
        more = [(0, len(self._ranks) - len(self._sums)), (0, len(self._phases) - self._sums.shape[1])]
        self._sums, self._counts = np.pad(self._sums, more), np.pad(self._counts, more)
        known = [rank in self._ranks for rank in timers.ranks], [phase in self._phases for phase in timers.phases]
        seconds = timers.seconds[np.ix_(*known)]
        place = np.ix_(
            [self._ranks[rank] for rank in timers.ranks if rank in self._ranks],
            [self._phases[phase] for phase in timers.phases if phase in self._phases],
        )
        finite = np.isfinite(seconds)
        self._sums[place] += np.where(finite, seconds, 0.0)
        self._counts[place] += finite

    def take(self) -> list[Extreme]:
        """Return the slowest and the fastest ranks of each timer that at least two ranks have, and begin anew."""
        found = [extreme for phase in self._phases for extreme in self._of(phase)]
        self._begin()
        return found

    def _of(self, phase: str) -> Iterator[Extreme]:
        column = self._phases[phase]
        counts = self._counts[:, column]
        timed = sorted(
            (self._sums[row, column] / counts[row], rank, int(counts[row]))
            for rank, row in self._ranks.items()
            if counts[row]
        )
        if len(timed) < 2:
            return
        slowest = sorted(timed, key=lambda one: (-one[0], one[1]))
        for which, order in (("slowest", slowest), ("fastest", timed)):
            for place, (seconds, rank, steps) in enumerate(order[: self._most], 1):
                yield Extreme(phase, which, place, rank, float(seconds), steps)
