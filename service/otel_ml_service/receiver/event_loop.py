"""What asyncio's loop does for the receiver, for less: a call from another thread, and a time limit that is moved."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["BatchedWakeup", "IdleTimer"]


class BatchedWakeup:
    """Calls functions on the loop's thread, in the order in which they were put.

    The journal stores some hundred requests at a time. To wake the loop for each of them took, with futures for the
    answers, a third of the receiver's time with 1,024 ranks.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._is_called = False

    def put(self, take: Callable[[Any], None], what: Any) -> None:
        """Call `take(what)` on the loop's thread; on any thread. Where the loop is closed nothing is called."""
        self._waiting.append((take, what))
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(self._call)

    def _call(self) -> None:
        self._is_called = False  # first: what is put from here on calls again, and may find nothing left
        try:
            while self._waiting:
                take, what = self._waiting.popleft()
                take(what)
        finally:  # the loop logs what failed, and goes on with the others
            if self._waiting:
                self._loop.call_soon(self._call)


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
