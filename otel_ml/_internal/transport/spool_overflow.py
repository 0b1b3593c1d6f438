"""What a spool lost: because it was full while nobody answered, with all steps when that is over, or was not read."""

from __future__ import annotations

from otel_ml._internal.error_reporting import ErrorReporter
from otel_ml._internal.transport.spool import SPOOL_FULL, Lost

__all__ = ["SpoolOverflow"]


class SpoolOverflow:
    """Counts what is lost in one outage.

    Args:
        reporter: counts points, and says sentences.
    """

    def __init__(self, reporter: ErrorReporter) -> None:
        self._reporter = reporter
        self._points = self._events = 0
        self._steps: dict[str, tuple[int, int]] = {}

    def add(self, lost: Lost) -> None:
        """Count what had to go."""
        self._count(lost)
        # Of what could not be read back the spool says it itself, and that has no end as an outage has.
        if lost.reason != SPOOL_FULL:
            return
        # At the first loss of an outage; how much it was in the end `settle()` says.
        if not self._points and not self._events and (lost.points or lost.frames):
            self._reporter.say(
                "spool-full",
                "The receiver has not answered for so long that the spool is full: from now on the oldest points are "
                "dropped and counted.",
            )
        self._points += lost.points
        self._events += lost.frames["L"]
        for axis, step, _ in lost.steps:
            first, last = self._steps.get(axis, (step, step))
            self._steps[axis] = min(first, step), max(last, step)

    def settle(self) -> None:
        """Say how much it was: the outage is over, or the process ends. A sentence of before may be among the lost."""
        if self._points or self._events:
            steps = ", ".join(f"{first} to {last} of axis {axis!r}" for axis, (first, last) in self._steps.items())
            events = f", and {self._events:,} {'event' if self._events == 1 else 'events'}" if self._events else ""
            points = f"{self._points:,} {'point was' if self._points == 1 else 'points were'}"
            self._reporter.say(
                "spool-full", f"The spool was full: {points} dropped, of steps {steps or '(none)'}{events}."
            )
        self._points = self._events = 0
        self._steps.clear()

    def _count(self, lost: Lost) -> None:
        for reason, count in (
            (lost.reason, lost.points),
            (f"events_{lost.reason}", lost.frames["L"]),
            (f"spans_{lost.reason}", lost.frames["S"]),
        ):
            if count:
                self._reporter.dropped[reason] += count
