from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from otel_ml_exporters import (
    Exporter,
    Record,
    RunInfo,
    StepRecord,
)
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.retries import RetryPolicy
from tests.waiting import eventually

QUICK = RetryPolicy(initial_s=0.001, maximum_s=0.01)


class MemorySource:
    """An outbox without a disk."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.records = list(records)
        self.first_seq = 1
        self.listeners: list[Callable[[], None]] = []

    @property
    def last_seq(self) -> int:
        return self.records[-1].seq if self.records else 0

    def read(self, after: int, limit: int) -> Sequence[Record]:
        return [record for record in self.records if record.seq > max(after, self.first_seq - 1)][:limit]

    def subscribe(self, name: str, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def add(self, *records: Record) -> None:
        self.records.extend(records)
        for listener in self.listeners:
            listener()


class Driver:
    """Runs a pipeline and remembers what it said."""

    def __init__(self, tmp_path: Path) -> None:
        self.run = RunInfo("run-1", "default", "run-1", tmp_path, 0.0)
        self.said: list[str] = []
        self.marks: list[tuple[int, Mapping[str, int]]] = []
        self.pipelines: list[Pipeline] = []

    def start(self, exporter: Exporter, source: MemorySource, *, delivered: int = 0) -> Pipeline:
        return self.start_with(lambda: exporter, source, delivered=delivered)

    def start_with(
        self, make: Callable[[], Exporter], source: MemorySource, *, delivered: int = 0, retry: RetryPolicy = QUICK
    ) -> Pipeline:
        pipeline = self.made(make, source, delivered=delivered, retry=retry)
        self.pipelines.append(pipeline)
        pipeline.start()
        return pipeline

    def made(
        self, make: Callable[[], Exporter], source: MemorySource, *, delivered: int = 0, retry: RetryPolicy = QUICK
    ) -> Pipeline:
        return Pipeline(
            "test",
            make,
            self.run,
            source,
            delivered=delivered,
            mark=lambda seq, lost: self.marks.append((seq, dict(lost))),
            say=lambda _slug, sentence: self.said.append(sentence),
            retry=retry,
        )

    def drain(self, exporter: Exporter, source: MemorySource, *, delivered: int = 0) -> Pipeline:
        pipeline = self.start(exporter, source, delivered=delivered)
        eventually(lambda: pipeline.status.delivered == source.last_seq)
        pipeline.ask_to_stop(10)
        assert pipeline.join()
        return pipeline


def steps(count: int, first: int = 1) -> list[Record]:
    return [StepRecord(seq, "", "step", seq, 0, 0.0, {"x": float(seq)}) for seq in range(first, first + count)]


def seqs(exporter: RecordingExporter) -> list[int]:
    return [record.seq for record in exporter.records]
