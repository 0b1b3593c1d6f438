"""A rank's own text log of statistics, written by a thread of its own: training never waits for a disk or device."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from pathlib import Path
from typing import Any

from otel_ml.diagnostics.inspection.host_copy import copied, wait_for
from otel_ml.diagnostics.inspection.writer_end import ended
from otel_ml.quantities import seconds
from otel_ml.warn_once import reporter

__all__ = ["TextLog"]

_QUEUED = 10_000
"""Lines that may wait for a slow disk; more are dropped and counted."""


class TextLog:
    """Appends lines as NVIDIA's tool writes them: time, level, name, `iteration=`, `value=`.

    Args:
        folder: made where it is not there.
        rank: in the file's name, `inspection-rank-<rank>.log`.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.path: Path = folder / f"inspection-rank-{rank}.log"
        self._lines: queue.Queue[tuple[float, str, int, Any, Any] | None] = queue.Queue(_QUEUED)
        self._thread = threading.Thread(target=self._write, name="otel_ml-inspection", daemon=True)
        self._thread.start()
        # The thread is a daemon: without this the end of the process would cut it off.
        atexit.register(self.close)

    def line(self, name: str, step: int, value: Any) -> None:
        """Write a statistic, when its value has arrived."""
        # Copied now, on the stream that computes it, so that the thread waits for this value alone.
        value, arrived = copied(value) if getattr(value, "is_cuda", False) else (value, None)
        try:
            self._lines.put_nowait((time.time(), name, step, value, arrived))
        except queue.Full:
            reporter.say(
                "inspection-log",
                f"{self.path} is written too slowly: lines are left out. The run has the values. Use a larger freq.",
            )

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits, within `timeout` seconds."""
        atexit.unregister(self.close)
        if not ended(self._thread, self._lines, timeout):
            reporter.say(
                "inspection-log",
                f"{self.path} is not written to its end after {seconds(timeout)} of waiting for the device or the "
                "disk: its last lines may be missing. The run has the values that came.",
            )

    def _write(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8", buffering=1) as file:
                while (item := self._lines.get()) is not None:
                    at, name, step, value, arrived = item
                    if not self._has_come(arrived, name):
                        continue
                    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
                    file.write(f"{moment} - INFO - {name}\t\titeration={step:06d}\t\tvalue={float(value):.6g}\n")
        except OSError as error:
            reporter.say(
                "inspection-log", f"{self.path} cannot be written to: {error}. The run has the values all the same."
            )
            # Nothing is written from now on, and who records still finds room, as `close()` does for its end.
            while self._lines.get() is not None:
                pass

    def _has_come(self, arrived: Any, name: str) -> bool:
        try:
            wait_for(arrived)
        except RuntimeError as error:
            said = f"{self.path} lacks {name!r}, and may lack more, which the device did not give: {error}."
            reporter.say("inspection-log", said, f"{self.path}: device")
            return False
        return True
