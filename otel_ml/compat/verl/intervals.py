"""States of a lane that overlap, as of an engine that answers several requests at once, are one interval."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from threading import RLock

import otel_ml

__all__ = ["INTERVALS", "Intervals"]


class _Interval:
    """From the first of the states to the last; nothing nests under its span, which has a context of its own."""

    def __init__(self, name: str) -> None:
        self.inside = 0
        self._context = copy_context()
        self._timed = otel_ml.timed(name)
        self._context.run(self._timed.__enter__)

    def end(self) -> None:
        self._context.run(self._timed.__exit__, None, None, None)


class Intervals:
    """The intervals of this process that have begun and not ended."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget all intervals, as a fork does: those of its parent end there."""
        self._lock = RLock()  # reentrant: a signal handler may be in a state, too
        self._open: dict[tuple[str | int | None, str], _Interval] = {}

    @contextmanager
    def state(self, row: str | int | None, name: str) -> Iterator[None]:
        """Be in a state: of those of a name that overlap in a row, the first begins the timer and the last ends it."""
        of = row, name
        with self._lock:
            # With setdefault() alone an interval would be made, and its timer begun, for each state.
            interval = self._open.get(of) or self._open.setdefault(of, _Interval(name))
            interval.inside += 1
        try:
            yield
        finally:
            with self._lock:
                interval.inside -= 1
                # In a fork `_open` is empty: an interval of the parent is not ended there a second time.
                if not interval.inside and self._open.get(of) is interval:
                    del self._open[of]
                    interval.end()


INTERVALS = Intervals()

os.register_at_fork(after_in_child=INTERVALS.begin_anew)
