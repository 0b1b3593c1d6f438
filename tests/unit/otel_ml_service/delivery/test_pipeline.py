from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from otel_ml_exporters import (
    Exporter,
    PermanentExportError,
    Record,
    RestartExporterError,
    RetryableExportError,
    RunInfo,
    RunStatus,
)
from otel_ml_exporters.testing import RecordingExporter
from tests.unit.otel_ml_service.delivery.driver import Driver, MemorySource, seqs, steps
from tests.waiting import eventually


def test_every_record_arrives_once_and_in_order_and_the_end_is_told(driver: Driver) -> None:
    source, exporter = MemorySource([*steps(1000), RunStatus(1001, 0.0, "finished")]), RecordingExporter()

    driver.drain(exporter, source)

    assert seqs(exporter) == list(range(1, 1002))
    assert exporter.ended_with == RunStatus(1001, 0.0, "finished")
    assert driver.marks[-1] == (1001, {})


def test_a_pipeline_that_was_never_started_has_nothing_to_wait_for(driver: Driver) -> None:
    pipeline = driver.made(RecordingExporter, MemorySource(steps(1)))

    pipeline.ask_to_stop(0.0)

    assert pipeline.join()


def test_records_that_come_later_are_delivered_without_being_asked_for(driver: Driver) -> None:
    source, exporter = MemorySource(), RecordingExporter()
    pipeline = driver.start(exporter, source)

    source.add(*steps(3))

    eventually(lambda: pipeline.status.delivered == 3)
    assert seqs(exporter) == [1, 2, 3]


def test_an_exporter_that_empties_its_batch_takes_nothing_from_the_pipeline(driver: Driver) -> None:
    class Greedy(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            super().export([*records])
            records.clear()  # type: ignore[attr-defined]

    exporter = Greedy()

    pipeline = driver.drain(exporter, MemorySource(steps(5)))

    assert seqs(exporter) == [1, 2, 3, 4, 5]
    assert pipeline.status.delivered == 5


def test_an_exporter_is_told_what_a_later_launch_says_about_the_run(driver: Driver) -> None:
    exporter, source = RecordingExporter(), MemorySource(steps(1))
    pipeline = driver.start(exporter, source)
    eventually(lambda: exporter.records)

    pipeline.describe(replace(driver.run, tags=("second",)))

    eventually(lambda: exporter.run is not None and exporter.run.tags == ("second",))
    source.add(*steps(1, first=2))
    eventually(lambda: pipeline.status.delivered == 2)


@pytest.mark.parametrize(
    ("error", "tries", "said"),
    [
        (RetryableExportError("away"), 2, "away. It is tried again"),
        (PermanentExportError("too long"), 1, "did not take tags or notes: too long"),
    ],
)
def test_a_backend_that_does_not_take_tags_is_asked_again_or_says_so_and_gets_its_records(
    driver: Driver, error: Exception, tries: int, said: str
) -> None:
    class Unwilling(RecordingExporter):
        tried = 0

        def describe(self, run: RunInfo) -> None:
            self.tried += 1
            if self.tried == 1:
                raise error

    exporter, source = Unwilling(), MemorySource(steps(1))
    pipeline = driver.start(exporter, source)
    eventually(lambda: exporter.records)

    pipeline.describe(replace(driver.run, notes="new"))
    eventually(lambda: exporter.tried == tries)  # what comes at the same moment may be delivered before
    source.add(*steps(1, first=2))
    eventually(lambda: pipeline.status.delivered == 2)

    assert exporter.tried == tries
    assert [sentence for sentence in driver.said if said in sentence]
    assert pipeline.status.problem is None


def test_a_backend_that_takes_tags_at_last_has_no_problem_any_more_though_there_is_nothing_to_export(
    driver: Driver,
) -> None:
    class Away(RecordingExporter):
        is_away = True

        def describe(self, run: RunInfo) -> None:
            if self.is_away:
                raise RetryableExportError("away")

    exporter, source = Away(), MemorySource(steps(1))
    pipeline = driver.start(exporter, source)
    eventually(lambda: pipeline.status.delivered == 1)
    pipeline.describe(replace(driver.run, notes="new"))
    eventually(lambda: pipeline.status.problem is not None)

    exporter.is_away = False

    eventually(lambda: pipeline.status.state == "running")
    assert pipeline.status.problem is None


def test_an_exporter_that_asks_for_another_one_when_it_is_told_tags_is_replaced(driver: Driver) -> None:
    class Tired(RecordingExporter):
        def describe(self, run: RunInfo) -> None:
            raise RestartExporterError("anew")

    made: list[RecordingExporter] = [Tired(), RecordingExporter()]
    source, first = MemorySource(steps(1)), made[0]
    pipeline = driver.start_with(lambda: made.pop(0), source)
    eventually(lambda: first.records)

    pipeline.describe(replace(driver.run, notes="new"))

    eventually(lambda: not made)
    source.add(*steps(1, first=2))
    eventually(lambda: pipeline.status.delivered == 2)


def test_an_exporter_that_hangs_is_given_up_at_the_deadline_and_the_log_says_so(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()

    class Hanging(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            released.wait(60)

    pipeline = driver.start(Hanging(), MemorySource(steps(1)))
    pipeline.ask_to_stop(0)

    stopped = pipeline.join()
    released.set()

    assert not stopped
    assert "Exporter test did not stop in time; 1 records are left." in caplog.text


def test_of_an_exporter_that_stops_in_time_the_log_says_nothing(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.drain(RecordingExporter(), MemorySource(steps(5)))

    assert not caplog.messages


def test_an_exporter_that_starts_with_the_newest_facts_is_not_told_them_again(driver: Driver) -> None:
    newest = replace(driver.run, tags=("second",))
    told: list[tuple[str, ...]] = []

    class Told(RecordingExporter):
        def describe(self, run: RunInfo) -> None:
            told.append(run.tags)

    def make() -> Exporter:
        driver.pipelines[-1].describe(newest)  # a later launch, while the exporter is built
        return Told()

    source = MemorySource(steps(1))
    pipeline = driver.start_with(make, source)
    eventually(lambda: pipeline.status.delivered == 1)

    assert told == []


def test_a_backend_that_lacks_records_at_the_deadline_is_not_told_that_the_run_has_ended(driver: Driver) -> None:
    class Slow(RecordingExporter):
        max_batch = 1

        def export(self, records: Sequence[Record]) -> None:
            driver.pipelines[-1].ask_to_stop(0)
            super().export(records)

    exporter = Slow()
    pipeline = driver.start(exporter, MemorySource([*steps(3), RunStatus(4, 0.0, "finished")]))
    eventually(lambda: pipeline.is_stopped)

    assert pipeline.behind == 3
    assert (exporter.is_closed, exporter.ended_with) == (True, None)


def test_records_that_could_not_be_read_for_a_moment_are_no_problem_once_they_can_be(driver: Driver) -> None:
    class Unsteady(MemorySource):
        is_away = False

        def read(self, after: int, limit: int) -> Sequence[Record]:
            if self.is_away:
                raise OSError("the disk does not answer")
            return super().read(after, limit)

    source = Unsteady(steps(2))
    pipeline = driver.start(RecordingExporter(), source)
    eventually(lambda: pipeline.status.delivered == 2)
    source.is_away = True
    source.add()
    eventually(lambda: pipeline.status.problem is not None)

    source.is_away = False

    eventually(lambda: pipeline.status.state == "running")
    assert pipeline.status.problem is None


class Closing(RecordingExporter):
    """One that notes how long its last call may take, which it is not given before `may_end`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()
        self.may_end.set()

    def force_flush(self, timeout: float) -> None:
        assert self.may_end.wait(60)

    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        self.timeout = timeout
        super().shutdown(timeout, status)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [((0,), 1, 1), ((100,), 90, 100), ((100, 0), 1, 1), ((10, 100), 5, 10)],
    ids=["a second at the least", "what is left", "an earlier deadline counts", "a later one does not"],
)
def test_the_last_call_of_an_exporter_may_take_what_is_left_until_the_deadline(
    driver: Driver, asked: tuple[float, ...], least: float, most: float
) -> None:
    exporter = Closing()
    pipeline = driver.start(exporter, MemorySource(steps(1)))
    eventually(lambda: pipeline.status.delivered == 1)
    exporter.may_end.clear()
    for timeout in asked:
        pipeline.ask_to_stop(timeout)
    exporter.may_end.set()
    eventually(lambda: pipeline.is_stopped)

    assert least <= exporter.timeout <= most


def test_what_an_exporter_has_taken_is_flushed_before_it_is_closed_though_the_rest_finds_no_backend(
    driver: Driver,
) -> None:
    class Buffered(RecordingExporter):
        max_batch = 1

        def __init__(self) -> None:
            super().__init__()
            self.stored: list[Record] = []

        def position(self) -> int | None:
            return len(self.stored)

        def export(self, records: Sequence[Record]) -> None:
            if records[0].seq > 2:
                raise RetryableExportError("no route to host")
            super().export(records)

        def force_flush(self, timeout: float) -> None:
            assert not self.is_closed
            self.stored = list(self.records)

    exporter = Buffered()
    pipeline = driver.start(exporter, MemorySource(steps(3)))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.ask_to_stop(0)

    eventually(lambda: pipeline.is_stopped)
    assert [record.seq for record in exporter.stored] == [1, 2]


def test_a_last_flush_that_fails_is_said_and_tried_once_more(driver: Driver) -> None:
    class Unsteady(RecordingExporter):
        flushes = 0

        def position(self) -> int | None:
            return len(self.records)

        def force_flush(self, timeout: float) -> None:
            self.flushes += 1
            if self.flushes == 1:
                raise OSError("the disk is slow")

    exporter = Unsteady()
    driver.drain(exporter, MemorySource(steps(3)))

    assert exporter.flushes == 2
    assert [sentence for sentence in driver.said if "the disk is slow" in sentence]
