"""A backend that is down for an hour, and limits how often it is asked: everything is there, in order, once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from otel_ml_exporters import Record, RetryableExportError, RunInfo, StepRecord
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.retries import RetryPolicy
from otel_ml_service.storage.outbox import Commit, Outbox
from tests.waiting import eventually

SECOND = 0.005
"""What a second of the story takes."""

HOUR = 3_600


class Slow(RecordingExporter):
    """Does not answer until it is up, and then two times a second."""

    max_batch = 100

    def __init__(self) -> None:
        super().__init__()
        self.is_up = False
        self.asked = 0
        self.refused = 0
        self.largest = 0
        self._taken: list[float] = []

    def export(self, records: Sequence[Record]) -> None:
        now = time.monotonic() / SECOND
        self.asked += 1
        if not self.is_up:
            raise RetryableExportError("the backend does not answer")
        recent = [moment for moment in self._taken if moment > now - 1.0]
        if len(recent) >= 2:
            self.refused += 1
            raise RetryableExportError("too many requests", retry_after=(recent[0] + 1.0 - now) * SECOND)
        self._taken = [*recent, now]
        self.largest = max(self.largest, len(records))
        super().export(records)


def test_an_hour_of_records_is_caught_up_with_within_the_rate_limit(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    exporter = Slow()
    pipeline = Pipeline(
        "slow", lambda: exporter, RunInfo("run-1", "default", "run-1", tmp_path, 0.0), outbox,
        mark=lambda seq, lost: None, say=lambda slug, sentence: None, retry=RetryPolicy(0.5 * SECOND, 60 * SECOND),
    )  # fmt: skip
    began = time.monotonic()
    pipeline.start()
    for seq in range(1, HOUR + 1):
        values = {f"m{n}": float(seq) for n in range(50)}
        outbox.commit(Commit([StepRecord(seq, "trainer", "step", seq, 0, float(seq), values)]))
    eventually(lambda: time.monotonic() - began > 600 * SECOND)  # on a quick disk, pauses are short until then
    asked_meanwhile, lasted = exporter.asked, (time.monotonic() - began) / SECOND
    exporter.is_up = True
    eventually(lambda: pipeline.behind == 0, timeout=60)
    pipeline.ask_to_stop(10)
    pipeline.join()
    outbox.close()

    assert [record.seq for record in exporter.records] == list(range(1, HOUR + 1))
    assert asked_meanwhile < lasted / 10  # it backs off, however long the disk needs for an hour of records
    assert exporter.largest == Slow.max_batch
    assert exporter.refused <= exporter.asked / 2
    assert dict(pipeline.status.lost) == {}
