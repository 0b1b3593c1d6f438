"""A time limit that is moved with each request and hardly ever reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["IdleTimer"]


class IdleTimer:
    """Calls `then` once the time last set has passed.

    A limit that is set later than before keeps the loop's timer, which is set anew only when it rings too early: three
    limits a request, each with a timer of its own, were a twelfth of the receiver's time with 1,024 ranks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
        self._loop = loop
        self._then = then
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Ring in `seconds` from now, and no more at the time set before."""
        self._due = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._due:
            self.cancel()
        if self._timer is None:
            self._timer = self._loop.call_at(self._due, self._ring)

    def cancel(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        early = self._loop.time() < self._due
        self._timer = self._loop.call_at(self._due, self._ring) if early else None
        if not early:
            self._then()
