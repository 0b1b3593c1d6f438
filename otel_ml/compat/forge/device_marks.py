"""Marks on the current CUDA stream, read by one background thread: nobody waits for the device."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any

from otel_ml.once import say

__all__ = ["DEVICE_MARKS", "DeviceMarks", "device_mark"]

PAUSE_S = 0.005
"""Between two looks at an event that is not done."""

SETTLE_S = 1.0
"""What the end of a program waits for the device's last times."""


def device_mark() -> Any | None:
    """Return an event recorded now on the current stream, or None where the program uses no CUDA device."""
    torch: Any = sys.modules.get("torch")  # a program that has not imported torch has no stream
    if torch is None or not torch.cuda.is_available():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


class DeviceMarks:
    """What is to be done once an event is; in order, since events of a stream are done in order."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: after a fork there is no thread."""
        self._waiting: deque[tuple[Any, Context, Callable[[], None]]] = deque()
        self._arrived: SimpleQueue[None] = SimpleQueue()  # unlike an event, a signal handler may interrupt it
        self._thread: threading.Thread | None = None

    def when_done(self, event: Any, act: Callable[[], None]) -> None:
        """Call `act` in the background, in this context, once the device has passed `event`."""
        self._waiting.append((event, copy_context(), act))
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="otel_ml.compat.forge", daemon=True)
            self._thread.start()
            atexit.register(self.settle, SETTLE_S)
        self._arrived.put(None)

    def settle(self, timeout: float) -> bool:
        """Wait until all are done, at most `timeout` seconds: for the end of a program, not for training."""
        deadline = time.monotonic() + timeout
        while self._waiting and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        return not self._waiting

    def _read(self) -> None:
        while True:
            self._arrived.get()
            while self._waiting:
                event, context, act = self._waiting[0]
                if event.query():
                    try:
                        context.run(act)
                    except Exception as error:  # noqa: BLE001 (the next measurements need this thread)
                        say(
                            "compat-forge",
                            f"A time of the device was not recorded: {type(error).__name__}: {error}.",
                        )
                    self._waiting.popleft()
                else:
                    time.sleep(PAUSE_S)


DEVICE_MARKS = DeviceMarks()

os.register_at_fork(after_in_child=DEVICE_MARKS.forget)
