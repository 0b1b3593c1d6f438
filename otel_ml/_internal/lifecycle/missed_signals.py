"""Signals that end a process although its main thread does not come to their handlers.

Python runs a handler on the main thread, once that is back in Python. One that waits for good in a collective, or that
has just gone to wait for a semaphore, never is: without a handler of ours the signal would have ended the process.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from otel_ml._internal.native import native

__all__ = ["MISSED_SIGNALS", "MissedSignals"]

_TIMEOUT_S = 0.2
"""Seconds for which the main thread may be elsewhere, in an operation of torch perhaps, before nobody waits for it."""


class MissedSignals:
    """Knows which signals have come, by the compiled part: Python alone does not tell. Without it nothing is missed."""

    def __init__(self) -> None:
        self._leave: Callable[[int], None] = lambda number: None
        self._watched: tuple[int, ...] = ()
        self._waiting_since: dict[int, float] = {}
        self._is_leaving = False

    def watch(self, number: int, leave: Callable[[int], None]) -> None:
        """Notice a signal, whose handler was just set: by us, and nobody else has one.

        Args:
            number: of the signal.
            leave: brings to safety what was recorded, and ends the process; on a thread of its own.
        """
        if native is not None and os.getpid() != 1:  # whom no signal without a handler ends
            native.watch_signal(number)
            self._leave = leave
            self._watched = tuple({*self._watched, number})

    def begun(self, number: int) -> None:
        """The handler runs."""
        if native is not None:
            native.signal_has_begun(number)

    def forget(self) -> None:
        """Nothing is watched anymore."""
        for number in self._watched:
            self.begun(number)
        self._watched = ()
        self._waiting_since.clear()
        self._is_leaving = False

    def look(self) -> None:
        """Have the process leave where the main thread does not come to it; at every round of a background thread."""
        if native is None or self._is_leaving:
            return
        for number in self._watched:
            if not native.is_signal_waiting(number):
                self._waiting_since.pop(number, None)
            # The time is that of the look that first found the signal waiting, which is at most one round after it
            # came.
            elif time.monotonic() - self._waiting_since.setdefault(number, time.monotonic()) >= _TIMEOUT_S:
                self._is_leaving = True
                threading.Thread(target=self._leave, args=(number,), name="otel-ml-exit", daemon=True).start()
                return


MISSED_SIGNALS = MissedSignals()
"""Of this process."""
