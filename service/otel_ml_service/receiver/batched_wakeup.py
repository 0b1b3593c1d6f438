"""From other threads to an event loop's: what is done meanwhile is handed over in one call of the loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["BatchedWakeup"]


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
