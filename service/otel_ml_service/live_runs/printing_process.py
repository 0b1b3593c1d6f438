"""Which process prints what a run has to say: rank 0 of each role would, and one finding is one message."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

__all__ = ["PrintingProcess"]

_PATIENCE_S = 10.0
"""Seconds for which news may wait for the process that prints, before another one that asks is given them."""


class PrintingProcess:
    """One at a time; another one takes over when it has left, or leaves news lying."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._who = ""
        self._first = 0
        self._waiting_since: float | None = None

    def first_for(self, who: str, told: int, notices: int, left: Collection[str]) -> int | None:
        """Return the number of the first notice that is for `who`, who asks; None where somebody else prints.

        Args:
            who: instance of the writer that asks.
            told: notices that a process that prints has been given.
            notices: that there are.
            left: writers that have said that they end.
        """
        if who != self._who and (not self._who or self._who in left or self._is_impatient(told, notices)):
            self._who, self._first = who, told
        if who != self._who:
            return None
        self._waiting_since = None
        return self._first

    def _is_impatient(self, told: int, notices: int) -> bool:
        if told >= notices:
            return False
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= _PATIENCE_S
