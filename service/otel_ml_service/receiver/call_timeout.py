"""How long a gRPC call may take to send its message: grpcio has no such limit, and each such call holds a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["MESSAGE_S", "CallTimeout"]

MESSAGE_S = 60.0
"""From the call's headers to the end of its message; 64 MiB at 10 Mbit/s, as over HTTP."""

_LOOK_S = 1.0


class Call(Protocol):
    """A gRPC servicer's context."""

    def cancel(self) -> None:
        """End the call."""


class CallTimeout:
    """Cancels calls that take longer, on a thread of its own."""

    def __init__(self) -> None:
        # Guards _until: the receiver's threads add and remove, ours looks.
        self._lock = threading.Lock()
        self._until: dict[Call, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="otel-ml-grpc-patience", daemon=True)

    def start(self) -> None:
        """Start to look."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; safe twice."""
        self._stopped.set()

    @contextmanager
    def with_(self, call: Call) -> Iterator[None]:
        """Give `call` its time inside the block."""
        with self._lock:
            self._until[call] = time.monotonic() + MESSAGE_S
        try:
            yield
        finally:
            with self._lock:
                del self._until[call]

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            now = time.monotonic()
            with self._lock:
                overdue = [call for call, until in self._until.items() if until <= now]
            for call in overdue:
                call.cancel()
