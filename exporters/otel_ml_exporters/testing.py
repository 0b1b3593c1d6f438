"""For authors of exporters, and for our own tests: a recording exporter, a flaky one, and a clock that stands still."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from otel_ml_exporters.errors import ExporterClosedError
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import Record, RunInfo, RunStatus

__all__ = ["FlakyExporter", "ManualClock", "RecordingExporter"]


class RecordingExporter(Exporter):
    """Keeps what it is given.

    Attributes:
        records: everything exported.
        run: what it was started for, or told since.
        ended_with: the status `shutdown` was given, once `is_closed`.

    Examples:
        >>> from otel_ml_exporters import Summary
        >>> exporter = RecordingExporter()
        >>> exporter.export([Summary(seq=1, time=0.0, values={"accuracy": 0.9})])
        >>> [record.seq for record in exporter.records]
        [1]
    """

    keeps_self_telemetry = True

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.run: RunInfo | None = None
        self.ended_with: RunStatus | None = None
        self.is_closed = False

    def start(self, run: RunInfo) -> None:
        """Keep `run`."""
        self.run = run

    def position(self) -> int | None:
        """Return nothing: memory does not survive a restart, so the pipeline's own mark counts."""
        return None

    def describe(self, run: RunInfo) -> None:
        """Keep `run`."""
        self.run = run

    def export(self, records: Sequence[Record]) -> None:
        """Keep `records`."""
        if self.is_closed:
            raise ExporterClosedError("recording")
        self.records.extend(records)

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Note the end."""
        self.is_closed = True
        self.ended_with = status


class FlakyExporter(RecordingExporter):
    """A recording exporter that fails as told.

    Args:
        failure: called before each export with the number of the call (from 1) and the records;
            what it returns is raised, None lets the call pass.
    """

    def __init__(self, failure: Callable[[int, Sequence[Record]], BaseException | None]) -> None:
        super().__init__()
        self._failure = failure
        self.calls = 0

    def export(self, records: Sequence[Record]) -> None:
        """Fail or keep `records`."""
        # Counted also where it fails: `failure` is told which try this is.
        self.calls += 1
        error = self._failure(self.calls, records)
        if error is not None:
            raise error
        super().export(records)


class ManualClock:
    """A clock that moves when it is told to.

    Examples:
        >>> clock = ManualClock(100.0)
        >>> clock.advance(2.5)
        >>> clock()
        102.5
    """

    def __init__(self, now: float = 0.0) -> None:
        # Guards _now: the service's threads read while the test's moves it.
        self._lock = threading.Lock()
        self._now = now

    def __call__(self) -> float:
        """Return the time."""
        with self._lock:
            return self._now

    def advance(self, seconds: float) -> None:
        """Move on; never back."""
        if seconds < 0:
            raise ValueError(f"Time does not go back; got {seconds!r} s. Give a positive number of seconds.")
        with self._lock:
            self._now += seconds
