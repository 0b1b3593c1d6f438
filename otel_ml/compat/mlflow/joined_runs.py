"""Runs of other processes that `log_metric(run_id=…)` has joined: each has a thread, a spool and perhaps a service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import otel_ml

__all__ = ["JoinedRuns"]

_OPEN = 64
"""Of one process. More are rarely named in turns; and who joins one again is, at a step that it has been at, another
attempt of it."""


class JoinedRuns:
    """Those that are open, the least recently used first. Who names one again that was left joins it again.

    Args:
        lock: under which a run is joined, too: it is either still open, and used, or has been left.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self._runs: dict[str, otel_ml.Run] = {}
        self._users: Counter[str] = Counter()

    def add(self, run: otel_ml.Run) -> None:
        """Have a run that was just joined leave when others are used; the lock is held by the caller."""
        self._runs[run.id] = run

    def use(self, run: otel_ml.Run) -> None:
        """Have a run be the one that was used last, if it is one of these; the lock is held by the caller."""
        if run.id in self._runs:
            self._runs[run.id] = self._runs.pop(run.id)

    def keep(self, run: otel_ml.Run) -> None:
        """Have a run not leave: whoever has begun it ends it; the lock is held by the caller."""
        self._runs.pop(run.id, None)

    @contextmanager
    def using(self, run: otel_ml.Run) -> Iterator[None]:
        """Have a run stay open inside the block, and leave another one after it if there are too many."""
        if run.id not in self._runs:
            yield
            return
        with self._lock:
            self._users[run.id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._users[run.id] -= 1
                self._leave()

    def _leave(self) -> None:
        unused = [run for run in self._runs.values() if not self._users[run.id]]
        for run in unused[: max(0, len(self._runs) - _OPEN)]:
            del self._runs[run.id], self._users[run.id]
            run.shutdown()
