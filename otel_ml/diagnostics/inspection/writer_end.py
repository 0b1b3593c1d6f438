"""The end of a thread that writes what waits in a queue."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from typing import Any

__all__ = ["ended"]


def ended(thread: threading.Thread, waiting: queue.Queue[Any], timeout: float) -> bool:
    """Have a thread end once it has taken all that waits, by a None; return whether it did within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    if thread.is_alive():
        with suppress(queue.Full):  # a disk that hangs
            # The queue has a bound, and may be full of what the thread has still to write.
            waiting.put(None, timeout=timeout)
        thread.join(max(0.0, deadline - time.monotonic()))
    return not thread.is_alive()
