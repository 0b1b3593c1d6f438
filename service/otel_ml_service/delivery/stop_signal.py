"""An exporter's thread is woken by new records, and told until when it has to be done."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["SHUTDOWN_GRACE_S", "StopSignal", "StoppedError"]

SHUTDOWN_GRACE_S = 1.0
"""The least an exporter gets to close its files, also after the deadline."""

HURRY_S = 30.0
"""How long pauses are short once a run has ended: a job that takes this service with it may be waiting."""

LONGEST_HURRIED_PAUSE_S = 2.0
"""Several fit into the 10 s for which such a job waits without progress."""


class StoppedError(Exception):
    """The deadline passed while waiting."""


class StopSignal:
    """Set by others; waited for by the exporter's thread.

    Attributes:
        clock: whose seconds count.
        wake: ends a wait, for whatever reason.
        deadline: by when to be done; None as long as nobody has asked to stop.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.wake = threading.Event()
        self.deadline: float | None = None
        # Over from the beginning: nobody is in a hurry yet.
        self._hurried_until = clock()

    def hurry(self) -> None:
        """Have pauses be short for a while, the one that is under way, too."""
        self._hurried_until = self.clock() + HURRY_S
        self.wake.set()

    def stop_within(self, timeout: float) -> None:
        """Have the thread be done in so many seconds; a later deadline than before is none."""
        if self.deadline is None or timeout < self.deadline - self.clock():
            self.deadline = self.clock() + timeout
            self.wake.set()

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has asked to stop."""
        return self.deadline is not None

    def has_time(self) -> bool:
        """Whether the deadline, if there is one, is not over."""
        return self.deadline is None or self.clock() < self.deadline

    def left(self) -> float:
        """Return the seconds that an exporter's last calls may take."""
        return max(SHUTDOWN_GRACE_S, (self.deadline or 0.0) - self.clock())

    def pause(self, seconds: float, *, asked: float = 0.0) -> None:
        """Wait before the next try; being asked to stop makes that try come at once.

        Args:
            seconds: to wait, unless there is a hurry.
            asked: what the backend asked for, which a hurry does not shorten.

        Raises:
            StoppedError: the deadline passed.
        """
        # Being asked to stop cuts one pause short, not all: a backend that is down would otherwise be tried in a tight
        # loop until the deadline.
        was_stopping = self.is_stopping
        began = self.clock()
        while (now := self.clock()) < (until := began + self._bounded(seconds, asked)):
            if self.is_stopping and not was_stopping:
                return
            if not self.has_time():
                raise StoppedError
            # A new record ends this wait, too, and is no reason to try sooner: the loop looks how long is left.
            self.wake.wait(max(0.0, min(until, self.deadline or until) - now))
            self.wake.clear()

    def _bounded(self, seconds: float, asked: float) -> float:
        """Return how long a pause is now."""
        is_hurried = self.clock() < self._hurried_until
        return max(asked, min(seconds, LONGEST_HURRIED_PAUSE_S)) if is_hurried else seconds
