"""Whatever a backend answers: each value is in it, once and as it was recorded, or counted as lost with its reason."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_exporters import (
    Exporter,
    PermanentExportError,
    Record,
    RestartExporterError,
    RetryableExportError,
    RunInfo,
    RunStatus,
    StepRecord,
)
from otel_ml_exporters.errors import StoreGoneError
from otel_ml_service.delivery.pipeline import Pipeline
from otel_ml_service.delivery.retries import RetryPolicy
from tests.waiting import eventually

QUICK = RetryPolicy(initial_s=0.0005, maximum_s=0.001)
SURPRISES = QUICK.surprises
"""As many as a record survives that has them all."""

ANSWERS = ("yes", "yes", "no start", "away", "half", "disk", "surprise", "restart", "killed", "gone")

FAILURES: Mapping[str, Exception] = {
    "away": RetryableExportError("away", retry_after=0.0),
    "disk": TimeoutError(),
    "surprise": ValueError("a defect"),
    "restart": RestartExporterError("of no use any more"),
    "killed": RestartExporterError("its process is gone, and what it held"),
    "gone": StoreGoneError("deleted"),
}

scripts = st.lists(st.sampled_from(ANSWERS), max_size=12).filter(lambda script: script.count("surprise") <= SURPRISES)


@dataclass
class Store:
    """What outlives a backend's process, and what the backend does at its next calls."""

    script: Iterator[str]
    rows: dict[int, Record] = field(default_factory=dict)
    is_gone: bool = False


class Backend(Exporter):
    """Stores when it is flushed; refuses values named `bad` wherever they are, and whole rows with `worse` in them."""

    def __init__(self, store: Store, *, every: int, max_batch: int, tells: bool) -> None:
        self._store = store
        self._buffer: dict[int, Record] = {}
        self._tells = tells
        self.every = every
        self.max_batch = max_batch
        self.ended_with: RunStatus | None = None

    def start(self, run: RunInfo) -> None:
        self._store.is_gone = False
        if next(self._store.script, "yes") == "no start":
            raise RetryableExportError("cannot start")

    def position(self) -> int | None:
        return max(self._store.rows, default=0) if self._tells else None

    @property
    def is_intact(self) -> bool:
        return not self._store.is_gone

    def export(self, records: Sequence[Record]) -> None:
        assert 0 < len(records) <= self.max_batch
        answer = next(self._store.script, "yes")
        if answer in ("killed", "gone"):
            self._buffer.clear()
        if answer == "gone":
            self._store.rows.clear()
            self._store.is_gone = True
        if answer in FAILURES:
            raise FAILURES[answer]
        if any("bad" in values_of(record) for record in records):
            raise PermanentExportError("a bad value", names={"bad"})
        if any("worse" in values_of(record) for record in records):
            raise PermanentExportError("a worse row")
        for record in records[: len(records) // 2] if answer == "half" else records:
            self._buffer[record.seq] = record
        if answer == "half":
            raise RetryableExportError("only half of it", retry_after=0.0)

    def force_flush(self, timeout: float) -> None:
        assert timeout > 0
        if not self._store.is_gone:
            self._store.rows.update(self._buffer)
        self._buffer.clear()

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        self.force_flush(timeout)
        self.ended_with = status


class Outbox:
    """Every record, from the beginning."""

    first_seq = 1

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self.last_seq = len(records)

    def read(self, after: int, limit: int) -> Sequence[Record]:
        assert after >= 0
        return self._records[after : after + limit]

    def subscribe(self, name: str, listener: object) -> None: ...


def values_of(record: Record) -> Mapping[str, float]:
    return record.values if isinstance(record, StepRecord) else {}


values = st.dictionaries(st.sampled_from(["loss", "lr", "bad", "worse"]), st.integers(0, 9).map(float), max_size=4)


@settings(max_examples=150)
@given(
    rows=st.lists(values, max_size=12),
    script=scripts,
    every=st.integers(1, 3),
    max_batch=st.integers(1, 5),
    tells=st.booleans(),
)
def test_each_value_is_in_the_backend_or_counted_as_lost_whatever_the_backend_does(
    rows: list[dict[str, float]], script: list[str], every: int, max_batch: int, tells: bool
) -> None:
    records: list[Record] = [StepRecord(seq, "", "step", seq, 0, 0.0, row) for seq, row in enumerate(rows, start=1)]
    records.append(RunStatus(len(records) + 1, 0.0, "finished"))
    wanted = [record for record in records if not isinstance(record, StepRecord) or record.step % every == 0]
    stored = {record.seq: without_bad(record) for record in wanted if "worse" not in values_of(record)}
    store, made, marks = Store(iter(script)), [], []

    def make() -> Exporter:
        made.append(Backend(store, every=every, max_batch=max_batch, tells=tells))
        return made[-1]

    def mark(seq: int, lost: Mapping[str, int]) -> None:
        marks.append((seq, dict(lost)))
        if not tells:
            assert {at for at in stored if at <= seq} <= store.rows.keys(), "the mark is ahead of what is stored"

    pipeline = Pipeline(
        "test", make, RunInfo("r", "e", "r", Path(tempfile.gettempdir()), 0.0), Outbox(records),
        mark=mark, say=lambda *_: None, retry=QUICK,
    )  # fmt: skip
    pipeline.start()
    eventually(lambda: pipeline.status.delivered == len(records))
    pipeline.ask_to_stop(10)
    assert pipeline.join()

    assert store.rows == stored
    assert dict(pipeline.status.lost) == lost_of(wanted)
    assert marks[-1] == (len(records), lost_of(wanted))
    assert (pipeline.is_stopped, pipeline.behind, pipeline.status.problem) == (True, 0, None)
    assert [backend.ended_with for backend in made if backend.ended_with] == [records[-1]]


def without_bad(record: Record) -> Record:
    if "bad" not in values_of(record):
        return record
    assert isinstance(record, StepRecord)
    return replace(record, values={name: value for name, value in record.values.items() if name != "bad"})


def lost_of(records: Sequence[Record]) -> dict[str, int]:
    """Return what the backend refuses: each bad value, and all that is left of a worse row."""
    bad = sum("bad" in values_of(record) for record in records)
    worse = sum(len(values_of(without_bad(record))) for record in records if "worse" in values_of(record))
    return {reason: count for reason, count in (("a bad value", bad), ("a worse row", worse)) if count}
