from __future__ import annotations

import errno
from collections.abc import Sequence

import pytest

from otel_ml_exporters import (
    Record,
    RestartExporterError,
    RunStatus,
    Summary,
)
from otel_ml_exporters.testing import FlakyExporter, RecordingExporter
from otel_ml_service.delivery.retries import RetryPolicy
from tests.unit.otel_ml_service.delivery.driver import Driver, MemorySource, seqs, steps
from tests.waiting import eventually


class Batching(RecordingExporter):
    """Wants batches of four, and notes the size of each."""

    max_batch = 4

    def __init__(self, max_delay: float) -> None:
        super().__init__()
        self.max_delay = max_delay
        self.batches: list[int] = []

    def export(self, records: Sequence[Record]) -> None:
        self.batches.append(len(records))
        super().export(records)


def test_every_thins_steps_and_nothing_else(driver: Driver) -> None:
    exporter = RecordingExporter()
    exporter.every = 10

    driver.drain(exporter, MemorySource([*steps(25), Summary(26, 0.0, {"x": 1.0})]))

    assert seqs(exporter) == [10, 20, 26]


def test_no_batch_is_empty_also_where_every_step_of_it_is_left_out(driver: Driver) -> None:
    class Counting(RecordingExporter):
        every = 1000
        max_batch = 10

        def export(self, records: Sequence[Record]) -> None:
            assert records
            super().export(records)

    exporter = Counting()

    pipeline = driver.drain(exporter, MemorySource(steps(1500)))

    assert (seqs(exporter), pipeline.status.lost) == ([1000], {})


def test_a_batch_is_filled_within_the_delay_and_never_larger_than_allowed(driver: Driver) -> None:
    source, exporter = MemorySource(steps(2)), Batching(30.0)
    pipeline = driver.start(exporter, source)

    source.add(*steps(7, first=3))
    eventually(lambda: pipeline.status.delivered == 8)
    pipeline.ask_to_stop(10)
    assert pipeline.join()

    assert exporter.batches == [4, 4, 1]


def test_a_batch_that_does_not_fill_is_delivered_when_its_delay_is_over(driver: Driver) -> None:
    source, exporter = MemorySource(steps(2)), Batching(0.05)

    pipeline = driver.start(exporter, source)

    eventually(lambda: pipeline.status.delivered == 2)
    assert seqs(exporter) == [1, 2]


def test_a_batch_waits_for_its_delay_also_where_that_is_less_than_a_second(driver: Driver) -> None:
    source, exporter = MemorySource(steps(2)), Batching(0.9)
    pipeline = driver.start(exporter, source)

    source.add(*steps(2, first=3))  # long before the delay is over

    eventually(lambda: pipeline.status.delivered == 4)
    assert exporter.batches == [4]


def test_the_end_of_a_run_is_delivered_at_once_whatever_a_batch_would_wait_for(driver: Driver) -> None:
    class Patient(RecordingExporter):
        max_delay = 1000.0

    source, exporter = MemorySource(steps(2)), Patient()
    pipeline = driver.start(exporter, source)

    source.add(RunStatus(3, 0.0, "finished"))

    eventually(lambda: pipeline.status.delivered == 3)
    assert seqs(exporter) == [1, 2, 3]


@pytest.mark.parametrize("gone", [1, 5])
def test_records_that_are_no_longer_kept_are_counted_and_the_rest_goes_on(driver: Driver, gone: int) -> None:
    source, exporter = MemorySource(steps(10)), RecordingExporter()
    source.first_seq = gone + 1

    pipeline = driver.drain(exporter, source)

    assert seqs(exporter) == list(range(gone + 1, 11))
    assert sum(pipeline.status.lost.values()) == gone


def test_records_that_are_no_longer_kept_stay_counted_where_the_exporter_is_replaced(driver: Driver) -> None:
    source = MemorySource(steps(10))
    source.first_seq = 6
    made = [FlakyExporter(lambda *_: RestartExporterError("anew")), RecordingExporter()]

    pipeline = driver.start_with(iter(made).__next__, source)
    eventually(lambda: pipeline.status.delivered == 10)

    assert seqs(made[1]) == [6, 7, 8, 9, 10]
    assert sum(pipeline.status.lost.values()) == 5


@pytest.mark.parametrize("gone", [1, 5])
def test_records_that_are_no_longer_kept_are_counted_once_where_the_backend_says_that_it_has_none_of_them(
    driver: Driver, gone: int
) -> None:
    class Empty(RecordingExporter):
        def position(self) -> int | None:
            return 0

    class EmptyAtFirst(Empty):
        def export(self, records: Sequence[Record]) -> None:
            raise RestartExporterError("anew")

    source = MemorySource(steps(10))
    source.first_seq = gone + 1
    made = [EmptyAtFirst(), Empty()]

    pipeline = driver.start_with(iter(made).__next__, source)
    eventually(lambda: pipeline.status.delivered == 10)

    assert seqs(made[1]) == list(range(gone + 1, 11))
    assert sum(pipeline.status.lost.values()) == gone


def test_records_of_which_none_is_kept_are_counted_once_each(driver: Driver) -> None:
    source, exporter = MemorySource(steps(10)), RecordingExporter()
    source.first_seq = 11

    pipeline = driver.start(exporter, source)
    eventually(lambda: pipeline.status.delivered == 10)
    source.add(*steps(2, first=11))
    eventually(lambda: pipeline.status.delivered == 12)

    assert seqs(exporter) == [11, 12]
    assert sum(pipeline.status.lost.values()) == 10
    assert [sentence.partition(": ")[2] for sentence in driver.said] == ["10 records are no longer kept."]


class FullSource(MemorySource):
    """One whose oldest records go while somebody reads what follows the second one: before or after it is found."""

    def __init__(self, records: Sequence[Record], *, before: int, after: int) -> None:
        super().__init__(records)
        self._before, self._after = before, after

    def read(self, after: int, limit: int) -> Sequence[Record]:
        if after != 2:
            return super().read(after, limit)
        self.first_seq = max(self.first_seq, self._before)
        found = super().read(after, limit)
        self.first_seq = max(self.first_seq, self._after)
        return found


@pytest.mark.parametrize(("before", "after"), [(6, 1), (1, 6), (5, 8)])
def test_records_that_go_while_the_exporter_reads_are_counted_or_delivered(
    driver: Driver, before: int, after: int
) -> None:
    class OneByOne(RecordingExporter):
        max_batch = 1

    exporter = OneByOne()
    pipeline = driver.drain(exporter, FullSource(steps(10), before=before, after=after))

    assert len(seqs(exporter)) + sum(pipeline.status.lost.values()) == 10


class CountingSource(MemorySource):
    """Counts how often it was read, and may be a disk that fails."""

    def __init__(self, records: Sequence[Record] = (), error: OSError | None = None) -> None:
        super().__init__(records)
        self.error = error
        self.reads = 0

    def read(self, after: int, limit: int) -> Sequence[Record]:
        self.reads += 1
        if self.error is not None and after < self.last_seq - 1:
            raise self.error
        return super().read(after, limit)


def test_a_disk_that_fails_is_not_read_again_before_the_pause_is_over(driver: Driver) -> None:
    source = CountingSource(steps(5), OSError(errno.EIO, "Input/output error"))
    pipeline = driver.start_with(RecordingExporter, source, retry=RetryPolicy(initial_s=60.0, maximum_s=60.0))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.ask_to_stop(0)
    assert pipeline.join()

    assert source.reads < 10


def test_who_has_delivered_everything_waits_and_does_not_read_over_and_over(driver: Driver) -> None:
    idle, busy = CountingSource(steps(1)), MemorySource(steps(2000))
    pipeline = driver.start(RecordingExporter(), idle)
    eventually(lambda: pipeline.status.delivered == 1)
    idle.add(*steps(1, first=2))
    eventually(lambda: pipeline.status.delivered == 2)

    driver.drain(RecordingExporter(), busy)

    assert idle.reads < 30


def test_who_waits_for_a_batch_to_fill_does_not_read_over_and_over(driver: Driver) -> None:
    class Patient(RecordingExporter):
        max_delay = 1000.0

    waiting, busy = CountingSource(steps(1)), MemorySource(steps(2000))
    driver.start(Patient(), waiting)
    eventually(lambda: waiting.reads)
    waiting.add(*steps(1, first=2))

    driver.drain(RecordingExporter(), busy)

    assert waiting.reads < 30
