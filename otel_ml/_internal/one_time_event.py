"""What a thread waits at until another one is done; a signal handler may interrupt the wait, and wait itself.

`threading.Event` has a lock that who waits holds for moments: a handler that runs in one of them, and waits for the
thread that is about to set the event, waits for ever. Here is nothing but one lock of the system, and a note that it
was opened.
"""

from __future__ import annotations

from _thread import TIMEOUT_MAX, allocate_lock
from contextlib import suppress

__all__ = ["OneTimeEvent"]


class OneTimeEvent:
    """Closed until it is opened, once."""

    __slots__ = ("_is_open", "_lock")

    def __init__(self) -> None:
        self._is_open = False
        self._lock = allocate_lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let everybody go on who waits or will wait."""
        self._is_open = True
        with suppress(RuntimeError):  # it is open
            self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, for `timeout` seconds if they are given; return whether it is."""
        try:
            return self._lock.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), TIMEOUT_MAX))
        finally:
            # For the next who waits; also where a signal handler has raised here, as Ctrl-C does, behind `acquire()`.
            # Not by `open()`: Python runs handlers where a function of Python begins, too, and it would stay closed.
            if self._is_open:
                try:  # noqa: SIM105 (`suppress` is one)
                    self._lock.release()
                except RuntimeError:
                    pass  # somebody else has done so meanwhile
