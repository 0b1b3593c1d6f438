"""Who began alone while others were at work: it compiles, allocates, fills caches, and is not slow for that."""

from __future__ import annotations

from itertools import repeat

from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["WarmUp"]

_STEPS = 16
"""First steps of a process, in which it warms up."""


class WarmUp:
    """The processes that were heard, and how many steps those that began alone are excused for.

    Ranks that begin together warm up together, and are compared as they are.
    """

    def __init__(self) -> None:
        self._processes: set[tuple[int, str]] = set()
        self._left: dict[int, int] = {}

    def step(self, timers: StepTimers) -> list[int]:
        """Take a step; return the ranks of it that warm up."""
        self._left |= dict.fromkeys(self._newcomers(timers), _STEPS)
        if not self._left:
            return []
        ranks = [rank for rank in timers.ranks if rank in self._left]
        for rank in ranks:
            self._left[rank] -= 1
            if not self._left[rank]:
                del self._left[rank]
        return ranks

    def _newcomers(self, timers: StepTimers) -> list[int]:
        """Return the ranks whose process was not heard before, where others were."""
        now = list(zip(timers.ranks, timers.processes or repeat(""), strict=False))
        new = [entry for entry in now if entry not in self._processes]
        # Asked before the new ones are among them.
        is_first = not self._processes
        self._processes.update(new)
        return [] if is_first else [rank for rank, _ in new]
