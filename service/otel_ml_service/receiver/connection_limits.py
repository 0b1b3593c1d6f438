"""What HTTP connections may take: one of them requests a second, all together sockets and bytes not answered yet."""

from __future__ import annotations

import math

from otel_ml_service.process_limits import most_files, open_files

__all__ = [
    "FEWER_CONNECTIONS",
    "MORE_FILES",
    "MOST_BYTES",
    "MOST_CONNECTIONS",
    "REQUESTS_PER_S",
    "TOO_FEW_FILES",
    "TOO_MANY",
    "ConnectionLimits",
    "RateLimit",
    "free_connections",
]

MOST_CONNECTIONS = 20_000
"""At once. A rank has one, and another for a moment when it asks for its account; beyond it a Collector is in front."""

MORE_FILES = (
    "allow it more open files (ulimit -n 65536 in its shell, LimitNOFILE=65536 in its systemd unit, --ulimit "
    "nofile=65536 of its container)"
)

FEWER_CONNECTIONS = "have a Collector on each host send for the ranks there"

TOO_FEW_FILES = (
    "the service has as many connections as it finds open files for. It comes back later; until then nothing of it "
    f"arrives. So that all connect, {MORE_FILES}, or {FEWER_CONNECTIONS}."
)
"""Why a connection is turned away, see `RefusalLog.tell`."""

TOO_MANY = (
    f"the service has {MOST_CONNECTIONS:,} connections, and takes no more. It comes back later; until then nothing of "
    f"it arrives. So that fewer are needed, {FEWER_CONNECTIONS}."
)
"""The same, however many files may be open."""


def free_connections() -> int:
    """Return how many more connections this process can take: each is an open file."""
    return max(0, min(MOST_CONNECTIONS, most_files() - open_files()))


MOST_BYTES = 512 * 2**20
"""Of requests read and not answered: eight of the largest."""

_ALWAYS = 2**20
"""A request of up to this size is always taken: the largest a worker of ours sends must not wait for others' bulk."""


class ConnectionLimits:
    """Counts; the receiver's thread alone uses it."""

    def __init__(self, most_connections: int = MOST_CONNECTIONS, most_bytes: int = MOST_BYTES) -> None:
        self._most_connections = most_connections
        self._most_bytes = most_bytes
        self._connections = 0
        self.held = 0
        """Bytes of requests that are not answered yet."""

    def enter(self) -> bool:
        """Count a connection, which `leave` takes back; False (and not counted) where there are enough."""
        if self._connections >= self._most_connections:
            return False
        self._connections += 1
        return True

    def leave(self) -> None:
        """Count a connection no more."""
        self._connections -= 1

    def grow(self, size: int, *, of: int) -> bool:
        """Count `size` more bytes of a request that has `of` by now; False where it is to be refused."""
        self.held += size
        return of <= _ALWAYS or self.held <= self._most_bytes

    def shrink(self, size: int) -> None:
        """Count bytes no more."""
        self.held -= size


REQUESTS_PER_S = 1000
"""A worker sends one or two a second, a Collector some hundred."""


class RateLimit:
    """A bucket that holds the requests of one second. Nothing is refused: it is read later.

    Examples:
        >>> pace = RateLimit(rate=2)
        >>> [pace.wait(now) for now in (0.0, 0.0, 0.0, 0.25, 9.0)]
        [0.0, 0.0, 0.5, 0.75, 0.0]
    """

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: float = REQUESTS_PER_S) -> None:
        self._rate = rate
        self._left = rate
        # Infinitely long ago: the first request finds the bucket full.
        self._at = -math.inf

    def wait(self, now: float) -> float:
        """Count a request, and return the seconds after which the next one may be read."""
        self._left = min(self._rate, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        return max(0.0, -self._left / self._rate)
