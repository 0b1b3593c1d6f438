"""What a full spool had to drop while nobody answered: said when it begins, and with all steps when it is over."""

from __future__ import annotations

from otel_ml._internal.guard import Guard
from otel_ml._internal.spool import Lost

__all__ = ["SPOOL_FULL", "Losses"]

SPOOL_FULL = "spool_full"
"""The reason under which it is counted."""


class Losses:
    """Counts what is lost in one outage.

    Args:
        guard: counts points, and says sentences.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._points = 0
        self._steps: dict[str, tuple[int, int]] = {}

    def add(self, lost: Lost) -> None:
        """Count what had to go."""
        if not self._points and lost.points:
            self._guard.say(
                "spool-full",
                "The receiver has not answered for so long that the spool is full: from now on the oldest points are "
                "dropped and counted.",
            )
        self._guard.dropped[SPOOL_FULL] += lost.points
        self._points += lost.points
        for axis, step, _ in lost.steps:
            first, last = self._steps.get(axis, (step, step))
            self._steps[axis] = min(first, step), max(last, step)

    def settle(self) -> None:
        """Say how much it was: the outage is over, or the process ends. A sentence of before may be among the lost."""
        if self._points:
            steps = ", ".join(f"{first} to {last} of axis {axis!r}" for axis, (first, last) in self._steps.items())
            self._guard.say(
                "spool-full",
                f"The spool was full: {self._points:,} points were dropped, of steps {steps or '(none)'}.",
            )
        self._points = 0
        self._steps.clear()
