"""What asyncio's loop does for the receiver, for less: a call from another thread, and time limits that are moved."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["BatchedWakeup", "Limited", "TimeLimits", "read_tls_by_records"]


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
        # Before the question: `_call` first says that it was called, and then takes all that is here. The other way
        # round, it might run to its end in between, and nobody would call it for this.
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


class Limited(Protocol):
    """What has a time limit: one at a time. `TimeLimits` alone changes both attributes.

    Attributes:
        due: when its limit is over, by the loop's clock.
        turn: the turn of the wheel in which that is looked at; None where it has no limit.
    """

    due: float
    turn: int | None

    def timed_out(self) -> None:
        """Called once the limit that was set last is over."""


TURN_S = 0.25
"""A limit is over at most so much later than it was set to."""


class TimeLimits:
    """The time limits of thousands of connections, with one timer of the loop: it rings for all that are due in a turn.

    A limit that is set later than before is looked at when the one before would be over, and only then put where it
    belongs: a connection has three a request. A timer for each was a twelfth of the receiver's time with 1,024 ranks,
    and half a kilobyte of a connection.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turns: dict[int, set[Limited]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set(self, limited: Limited, seconds: float) -> None:
        """Have its limit in `seconds` from now, and no more at the time set before."""
        due = self._loop.time() + seconds
        turn = _turn_of(due)
        # A later limit stays in the turn of the earlier one: `_ring` looks at `due`, and moves it then.
        if limited.turn is None or turn < limited.turn:
            self.cancel(limited)
            self._put(limited, turn)
        # Behind `cancel`, which sets it to never.
        limited.due = due

    def cancel(self, limited: Limited) -> None:
        """Have no limit."""
        limited.due = math.inf
        if limited.turn is not None:
            self._turns[limited.turn].discard(limited)
            limited.turn = None

    def _put(self, limited: Limited, turn: int) -> None:
        limited.turn = turn
        self._turns.setdefault(turn, set()).add(limited)
        self._ring_at(turn)

    def _ring_at(self, turn: int) -> None:
        if self._timer is not None and self._timer.when() > turn * TURN_S:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(turn * TURN_S, self._ring)

    def _ring(self) -> None:
        now, self._timer = self._loop.time(), None
        for turn in [turn for turn in self._turns if turn * TURN_S <= now]:
            for limited in self._turns.pop(turn):
                limited.turn = None
                if limited.due > now:
                    self._put(limited, _turn_of(limited.due))
                else:
                    # Not called here: it may set and cancel others' limits, while some of this turn are not yet moved,
                    # and one that raises would leave those without a limit.
                    self._loop.call_soon(self._over, limited)
        if self._turns:
            self._ring_at(min(self._turns))

    def _over(self, limited: Limited) -> None:
        if limited.due <= self._loop.time():  # nothing has come for it since
            limited.timed_out()


def _turn_of(due: float) -> int:
    return math.ceil(due / TURN_S)


_RECORD = 16 * 1024
"""The most that a record of TLS holds (RFC 8446, 5.1)."""


def read_tls_by_records() -> None:
    """Have asyncio read TLS with a buffer of a record from now on.

    Each connection has one of its own, of 256 KiB: of 16,384 ranks 4 GiB. More than a record is not decrypted at once.
    """
    asyncio.sslproto.SSLProtocol.max_size = _RECORD  # type: ignore[attr-defined]  # typeshed does not know it
