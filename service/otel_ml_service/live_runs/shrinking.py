"""Runs that have ended are made small, one after the other, on threads that nobody waits for."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from otel_ml_service.storage.shrink import shrink

__all__ = ["Shrinking"]

_log = logging.getLogger(__name__)

_ASKED_S = 0.05
"""How often what waits for its turn looks whether it is to stop."""


class Shrinking:
    """Owned by the thread that opens and closes runs."""

    def __init__(self) -> None:
        # One at a time: runs that end together must not take all cores from those that go on.
        self._turn = threading.Lock()
        self._work: dict[Path, _Work] = {}

    def begin(self, path: Path) -> None:
        """Make a `run.db` small that is closed."""
        # Those that are done are forgotten here, as nobody waits for them.
        self._work = {path: work for path, work in self._work.items() if work.thread.is_alive()}
        self._work[path] = _Work(path, self._turn)

    def stop(self, path: Path) -> None:
        """Leave a file as far as it is by now: it is about to be opened."""
        work = self._work.pop(path, None)
        if work is not None:
            work.ask_to_stop()
            work.thread.join()

    def finish(self, timeout: float) -> None:
        """Wait at most `timeout` seconds, and leave what is not done by then."""
        deadline = time.monotonic() + timeout
        for work in self._work.values():
            work.thread.join(max(0.0, deadline - time.monotonic()))
        for work in self._work.values():  # all, before one is waited for: else the next would begin meanwhile
            work.ask_to_stop()
        for path in list(self._work):
            self.stop(path)


class _Work:
    def __init__(self, path: Path, turn: threading.Lock) -> None:
        self._path = path
        self._turn = turn
        self._stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="otel-ml-shrink", daemon=True)
        self.thread.start()

    def ask_to_stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():  # whoever stops it does not wait for the turn of another one
            if self._turn.acquire(timeout=_ASKED_S):
                try:
                    shrink(self._path, self._stopped.is_set)
                except Exception:  # noqa: BLE001 (a defect of ours costs room on the disk, and nothing else)
                    _log.exception("%s stays as large as it is.", self._path)
                finally:
                    self._turn.release()
                return
