"""What a thread waits at until another one is done; a signal handler may interrupt the wait, and wait itself.

`threading.Event` has a lock that who waits holds for moments: a handler that runs in one of them, and waits for the
thread that is about to set the event, waits for ever. Here is nothing but one lock of the system.
"""

from __future__ import annotations

from _thread import TIMEOUT_MAX, allocate_lock
from contextlib import suppress

__all__ = ["OneTimeEvent"]


class OneTimeEvent:
    """Closed until it is opened, once."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let everybody go on who waits or will wait."""
        with suppress(RuntimeError):  # it is open
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, for `timeout` seconds if they are given; return whether it is."""
        is_open = self._lock.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), TIMEOUT_MAX))
        if is_open:
            self.open()  # for the next who waits
        return is_open
