"""Ranks that work and meet, step after step: who works how long is known, and timers say what they took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["RanksThatMeet"]

Floats = npt.NDArray[np.float64]


class RanksThatMeet:
    """Clocks of ranks that begin together.

    Attributes:
        now: of each rank, seconds.
        draw: of this job.
    """

    def __init__(self, seed: int, ranks: int, scatter: float = 0.01) -> None:
        self.draw = np.random.default_rng(seed)
        self.now = np.zeros(ranks)
        self._scatter = scatter
        self._timers: dict[str, Floats] = {}

    def work(self, timer: str, seconds: Floats | float) -> None:
        """Each rank works for that long, more or less."""
        self.until(timer, self.now + seconds * self.draw.lognormal(0.0, self._scatter, len(self.now)))

    def meet(self, timer: str, groups: Sequence[npt.NDArray[np.int64]] = (), cost: Floats | float = 0.005) -> None:
        """The ranks of each group leave together, each by its cost later than the last one came."""
        left = self.now.copy()
        for rows in groups or (np.arange(len(left)),):
            left[rows] = self.now[rows].max()
        self.until(timer, left + cost)

    def meet_inside(self, timer: str, seconds: float) -> None:
        """Each rank works, and waits in the same timer for all others."""
        done = self.now + seconds * self.draw.lognormal(0.0, self._scatter, len(self.now))
        self.until(timer, np.full(len(done), done.max()) + self.draw.exponential(0.0005, len(done)))

    def until(self, timer: str, when: Floats) -> None:
        """Each rank is in a timer until then."""
        self._timers[timer] = self._timers.get(timer, 0.0) + when - self.now
        self.now = when

    def step(self) -> StepTimers:
        """Return what was timed since the step before."""
        timers, self._timers = self._timers, {}
        ended = tuple((self.now * 1e9).astype(np.int64).tolist())
        return StepTimers(
            tuple(range(len(self.now))), tuple(timers), np.column_stack(list(timers.values())), ended_ns=ended
        )
