from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_ml_exporters import (
    Exporter,
    PermanentExportError,
    Record,
    RestartExporterError,
    RunInfo,
    RunStatus,
    StepRecord,
)
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.delivery.pipeline import Pipeline
from tests.unit.otel_ml_service.delivery.driver import QUICK, Driver, MemorySource, seqs, steps
from tests.waiting import eventually


@pytest.mark.parametrize("answer", [ValueError("no answer"), asyncio.CancelledError(), "seven"])
def test_an_exporter_that_cannot_tell_its_position_is_said_and_asked_again(driver: Driver, answer: object) -> None:
    class Forgetful(RecordingExporter):
        asked = 0

        def position(self) -> int | None:
            self.asked += 1
            if self.asked > 2:
                return super().position()
            if isinstance(answer, BaseException):
                raise answer
            return answer  # type: ignore[return-value]

        def shutdown(self, timeout: float, status: RunStatus | None) -> None:
            """The same object is started again here."""

    exporter = Forgetful()

    driver.drain(exporter, MemorySource(steps(5)))

    assert seqs(exporter) == [1, 2, 3, 4, 5]
    assert any("Exporter 'test'" in sentence for sentence in driver.said)


class Forgetful(RecordingExporter):
    """One whose `export` keeps in memory what only `force_flush` stores; a kill takes the rest."""

    def __init__(self, stored: list[int]) -> None:
        super().__init__()
        self.stored = stored

    def force_flush(self, timeout: float) -> None:
        self.stored.extend(record.seq for record in self.records)
        self.records.clear()


def test_the_mark_of_an_exporter_without_a_position_is_never_ahead_of_what_it_has_flushed(tmp_path: Path) -> None:
    stored: list[int] = []
    marks: list[tuple[int, int]] = []
    source = MemorySource(steps(600))
    pipeline = Pipeline(
        "test",
        lambda: Forgetful(stored),
        RunInfo("run-1", "default", "run-1", tmp_path, 0.0),
        source,
        mark=lambda seq, _: marks.append((seq, max(stored, default=0))),
        say=lambda *_: None,
        retry=QUICK,
    )
    pipeline.start()
    eventually(lambda: pipeline.status.delivered == 600)
    pipeline.ask_to_stop(10)
    assert pipeline.join()

    assert marks
    assert all(mark <= flushed for mark, flushed in marks)


@pytest.mark.parametrize(
    ("position", "stored", "expected"), [(None, 3, [4, 5]), (2, 3, [3, 4, 5]), (4, 3, [5]), (-1, 3, [1, 2, 3, 4, 5])]
)
def test_the_backends_own_position_counts_more_than_ours(
    driver: Driver, position: int | None, stored: int, expected: list[int]
) -> None:
    class Remembering(RecordingExporter):
        def position(self) -> int | None:
            return position

    exporter = Remembering()

    pipeline = driver.drain(exporter, MemorySource(steps(5)), delivered=stored)

    assert seqs(exporter) == expected
    assert pipeline.status.lost == {}


class DyingExporter(RecordingExporter):
    """Stores at once, and dies as wandb-core does: the store stays, the exporter is of no use any more."""

    def __init__(self, store: list[Record]) -> None:
        super().__init__()
        self.records = store
        self.is_first = not store

    def position(self) -> int | None:
        return self.records[-1].seq if self.records else 0

    def export(self, records: Sequence[Record]) -> None:
        if self.is_first and self.records:
            raise RestartExporterError("the process behind it is gone")
        super().export(records)

    @property
    def notice(self) -> str | None:
        return "Kept offline."


def test_an_exporter_that_asks_for_it_is_replaced_and_goes_on_from_its_own_position(driver: Driver) -> None:
    source = MemorySource(steps(600))
    store: list[Record] = []
    made: list[DyingExporter] = []

    def make() -> Exporter:
        made.append(DyingExporter(store))
        return made[-1]

    pipeline = driver.start_with(make, source)
    eventually(lambda: pipeline.status.delivered == 600)

    assert [record.seq for record in store] == list(range(1, 601))
    assert [exporter.is_closed for exporter in made] == [True, False]
    assert driver.said.count("Kept offline.") == 1


class LosingExporter(Forgetful):
    """One whose backend ends while it stores the last records: what it held is gone."""

    def position(self) -> int | None:
        return max(self.stored, default=0)

    def force_flush(self, timeout: float) -> None:
        if not self.stored:
            self.stored.append(2)
            self.records.clear()
            raise RestartExporterError("the process behind it ended at record 2")
        super().force_flush(timeout)


def test_what_an_exporter_loses_at_the_end_of_a_run_is_given_to_the_next_one(driver: Driver) -> None:
    stored: list[int] = []
    made: list[LosingExporter] = []

    def make() -> Exporter:
        made.append(LosingExporter(stored))
        return made[-1]

    pipeline = driver.start_with(make, MemorySource(steps(5)))
    eventually(lambda: pipeline.status.delivered == 5)
    pipeline.ask_to_stop(10)
    assert pipeline.join()

    assert stored == [2, 3, 4, 5]
    assert len(made) == 2
    assert pipeline.status.lost == {}


class ClosingExporter(DyingExporter):
    """Stores at once, and closes itself in the middle, with an error that says nothing of that."""

    def export(self, records: Sequence[Record]) -> None:
        if self.is_first and self.records:
            self.is_first = False
            self.is_closed = True
            raise SystemExit(-9)
        RecordingExporter.export(self, records)


def test_an_exporter_that_closed_itself_is_replaced_and_nothing_is_lost(driver: Driver) -> None:
    source = MemorySource(steps(600))
    store: list[Record] = []

    pipeline = driver.start_with(lambda: ClosingExporter(store), source)
    eventually(lambda: pipeline.status.delivered == 600)

    assert [record.seq for record in store] == list(range(1, 601))
    assert dict(pipeline.status.lost) == {}


class AmnesicExporter(DyingExporter):
    """Knows what is stored as long as it lives; its successor cannot tell, and gets the rest anew."""

    def position(self) -> int | None:
        return 0 if self.is_first else None


def test_what_an_exporter_was_given_since_its_position_comes_again_where_its_successor_knows_none(
    driver: Driver,
) -> None:
    source = MemorySource(steps(600))
    store: list[Record] = []

    pipeline = driver.start_with(lambda: AmnesicExporter(store), source)
    eventually(lambda: pipeline.status.delivered == 600)

    taken = [record.seq for record in store]
    assert taken[-600:] == list(range(1, 601))
    assert len(taken) > 600, "what had been given before comes twice, as the backend may have lost it"


def test_a_store_that_is_deleted_while_the_last_records_are_flushed_is_written_again(driver: Driver) -> None:
    class Deleted(RecordingExporter):
        is_gone = False

        def position(self) -> int:
            return 0

        @property
        def is_intact(self) -> bool:
            return not self.is_gone

        def force_flush(self, timeout: float) -> None:
            self.is_gone = len(made) == 1 and bool(self.records)

    made: list[Deleted] = []

    def make() -> Exporter:
        made.append(Deleted())
        return made[-1]

    pipeline = driver.start_with(make, MemorySource([*steps(5), RunStatus(6, 0.0, "finished")]))
    eventually(lambda: pipeline.behind == 0)
    pipeline.ask_to_stop(20)
    assert pipeline.join()

    assert [len(exporter.records) for exporter in made] == [6, 6]
    assert made[-1].ended_with == RunStatus(6, 0.0, "finished")
    assert made[0].ended_with is None
    assert any("written again, from the beginning" in sentence for sentence in driver.said)


def test_a_value_that_a_stored_row_went_without_stays_counted_where_the_exporter_is_replaced(driver: Driver) -> None:
    stored: list[Record] = []
    replaced: list[int] = []

    class Backend(RecordingExporter):
        max_batch = 1

        def position(self) -> int | None:
            return stored[-1].seq if stored else 0

        def export(self, records: Sequence[Record]) -> None:
            [row] = records
            assert isinstance(row, StepRecord)
            if "b" in row.values:
                raise PermanentExportError("no such name", names={"b"})
            if row.seq == 2 and not replaced:
                replaced.append(row.seq)
                raise RestartExporterError("It was closed.")
            stored.append(row)

    source = MemorySource([StepRecord(1, "", "step", 1, 0, 0.0, {"a": 1.0, "b": 2.0}), *steps(1, first=2)])

    pipeline = driver.start_with(Backend, source)

    eventually(lambda: [record.seq for record in stored] == [1, 2])
    pipeline.ask_to_stop(10)
    assert pipeline.join()
    assert replaced
    assert pipeline.status.lost == {"no such name": 1}


class Keeping(RecordingExporter):
    """A backend with records of the run that are not its source's; it leaves out what it has, and refuses one."""

    def __init__(self, store: list[Record]) -> None:
        super().__init__()
        self.records = store

    def position(self) -> int | None:
        return self.records[-1].seq

    def export(self, records: Sequence[Record]) -> None:
        if any(isinstance(record, StepRecord) and record.step == 2 for record in records):
            raise PermanentExportError("no step 2")
        super().export([record for record in records if record.seq > self.records[-1].seq])


def test_records_follow_those_that_a_backend_has_from_elsewhere(driver: Driver) -> None:
    store = steps(7)

    def started(count: int) -> Pipeline:
        source = MemorySource(steps(count))
        pipeline = Pipeline(
            "test", lambda: Keeping(store), driver.run, source, mark=lambda *_: None, say=lambda *_: None, retry=QUICK,
            seq_offset=lambda _: 7,
        )  # fmt: skip
        pipeline.start()
        eventually(lambda: pipeline.status.delivered == count)
        pipeline.ask_to_stop(10)
        assert pipeline.join()
        return pipeline

    first, again = started(3), started(5)

    assert [(record.seq, record.step) for record in store[7:] if isinstance(record, StepRecord)] == [
        (8, 1), (10, 3), (11, 4), (12, 5)
    ]  # fmt: skip
    assert (sum(first.status.lost.values()), sum(again.status.lost.values())) == (1, 0)
