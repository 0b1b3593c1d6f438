"""What all HTTP connections together may hold: sockets, and bytes of requests that are not answered yet."""

from __future__ import annotations

__all__ = ["MOST_BYTES", "MOST_CONNECTIONS", "ConnectionLimits"]

MOST_CONNECTIONS = 4096
"""At once. A rank has one, and another for a moment when it asks for its account; beyond it a Collector is in front."""

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
