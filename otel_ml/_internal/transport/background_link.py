"""Looks for a receiver on a thread of its own, so that the spool goes on being written meanwhile.

A service that is stopped is waited for a quarter of a second each time it is asked whether it lives; a `kill -9` may
cost 200 ms of records then, too.
"""

from __future__ import annotations

from otel_ml._internal.single_thread_executor import BackgroundTask, SingleThreadExecutor
from otel_ml._internal.transport.link import Link, Reached

__all__ = ["BackgroundLink"]

LOOK_S = 0.02
"""Seconds a look is waited for: most take a millisecond. What comes of a longer one is told by a later call."""

LAST_LOOK_S = 1.0
"""Seconds one that is under way has at the end, to let go of what it holds."""


class BackgroundLink:
    """A link whose `reach` returns within some milliseconds, however long that of `link` takes."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._background = SingleThreadExecutor()
        self._look: BackgroundTask[Reached | None] | None = None

    def reach(self, now: float, *, failing_s: float) -> Reached | None:
        # One look at a time: a later call asks what has come of it.
        if self._look is None:
            self._look = self._background.begin_or_do(lambda: self._link.reach(now, failing_s=failing_s))
        look = self._look
        if not look.done.wait(LOOK_S):
            return None
        self._look = None
        reached = look.outcome()
        if reached is not None:
            self._background.close()  # it may never be needed again
        return reached

    @property
    def is_starting(self) -> bool:
        return self._link.is_starting

    @property
    def is_served(self) -> bool:
        return self._link.is_served

    @property
    def serves_here(self) -> bool:
        return self._link.serves_here

    def close(self) -> None:
        if self._look is not None:
            self._look.done.wait(LAST_LOOK_S)
        self._background.close()
        self._link.close()

    def forget(self) -> None:
        """In a forked child: there is no thread, and nobody to wait for."""
        self._background.forget()
        self._link.close()
