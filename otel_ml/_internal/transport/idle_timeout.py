"""For how long a receiver is waited for: since it took the last byte, not since the request began.

A record of 4 MiB takes a minute on half a megabit. With one deadline for all of it, it would begin anew for ever, and
what follows it would never be sent.
"""

from __future__ import annotations

import fcntl
import sys
import termios
import time

__all__ = ["IdleTimeout"]

_LOOK_S = 0.2
"""How often is looked whether bytes still leave: a kernel holds megabytes of what it was given."""


class IdleTimeout:
    """Of one request.

    Args:
        seconds: without a byte taken after which nothing more is expected.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._unsent = 0
        self.begin_anew()

    def begin_anew(self) -> None:
        """Note that a byte was taken."""
        self._until = time.monotonic() + self._seconds

    def left(self) -> float:
        """Return for how long the next byte is waited for.

        Raises:
            TimeoutError: it should have come by now.
        """
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def until_next_look(self, descriptor: int) -> float:
        """Return for how long to wait, until it is looked again whether bytes of ours still leave.

        Raises:
            TimeoutError: none has left for too long, or the last one long ago.
        """
        unsent = _unsent(descriptor)
        # Less than at the last look: the peer has taken some of it.
        if unsent < self._unsent:
            self.begin_anew()
        self._unsent = unsent
        return min(self.left(), _LOOK_S) if unsent else self.left()


def _unsent(descriptor: int) -> int:
    """Return how many bytes were given to the kernel, and not taken by the peer's yet; 0 where it does not say."""
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0
