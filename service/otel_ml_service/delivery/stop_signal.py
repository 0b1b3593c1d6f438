"""An exporter's thread is woken by new records, and told until when it has to be done."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["SHUTDOWN_GRACE_S", "StopSignal", "StoppedError"]

SHUTDOWN_GRACE_S = 1.0
"""The least an exporter gets to close its files, also after the deadline."""


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

    def pause(self, seconds: float) -> None:
        """Wait before the next try; being asked to stop makes that try come at once.

        Raises:
            StoppedError: the deadline passed.
        """
        # Being asked to stop cuts one pause short, not all: a backend that is down would otherwise be tried in a tight
        # loop until the deadline.
        was_stopping = self.is_stopping
        until = self.clock() + seconds
        while self.clock() < until and (not self.is_stopping or was_stopping):
            if not self.has_time():
                raise StoppedError
            self.wake.wait(max(0.0, min(until, self.deadline or until) - self.clock()))
            self.wake.clear()
