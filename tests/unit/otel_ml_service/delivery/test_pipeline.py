from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml_exporters import (
    Exporter,
    PermanentExportError,
    Record,
    RestartExporterError,
    RetryableExportError,
    RunInfo,
    RunStatus,
    StepRecord,
    Summary,
)
from otel_ml_exporters.testing import FlakyExporter, RecordingExporter
from otel_ml_service.delivery.backoff import Backoff, RetryPolicy
from otel_ml_service.delivery.pipeline import Pipeline
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
        pipeline = Pipeline(
            "test",
            make,
            self.run,
            source,
            delivered=delivered,
            mark=lambda seq, lost: self.marks.append((seq, dict(lost))),
            say=lambda _slug, sentence: self.said.append(sentence),
            retry=retry,
        )
        self.pipelines.append(pipeline)
        pipeline.start()
        return pipeline

    def drain(self, exporter: Exporter, source: MemorySource, *, delivered: int = 0) -> Pipeline:
        pipeline = self.start(exporter, source, delivered=delivered)
        eventually(lambda: pipeline.status.delivered == source.last_seq)
        pipeline.ask_to_stop(10)
        assert pipeline.join()
        return pipeline


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    found = Driver(tmp_path)
    yield found
    for pipeline in found.pipelines:
        pipeline.ask_to_stop(0)
        pipeline.join()


def steps(count: int, first: int = 1) -> list[Record]:
    return [StepRecord(seq, "", "step", seq, 0, 0.0, {"x": float(seq)}) for seq in range(first, first + count)]


def seqs(exporter: RecordingExporter) -> list[int]:
    return [record.seq for record in exporter.records]


def test_every_record_arrives_once_and_in_order_and_the_end_is_told(driver: Driver) -> None:
    source, exporter = MemorySource([*steps(1000), RunStatus(1001, 0.0, "finished")]), RecordingExporter()

    driver.drain(exporter, source)

    assert seqs(exporter) == list(range(1, 1002))
    assert exporter.ended_with == RunStatus(1001, 0.0, "finished")
    assert driver.marks[-1] == (1001, {})


def test_records_that_come_later_are_delivered_without_being_asked_for(driver: Driver) -> None:
    source, exporter = MemorySource(), RecordingExporter()
    pipeline = driver.start(exporter, source)

    source.add(*steps(3))

    eventually(lambda: pipeline.status.delivered == 3)
    assert seqs(exporter) == [1, 2, 3]


def test_retryable_failures_delay_and_lose_nothing(driver: Driver) -> None:
    source = MemorySource(steps(2000))
    rng = random.Random(7)
    exporter = FlakyExporter(lambda call, _: RetryableExportError("busy") if rng.random() < 0.5 else None)

    pipeline = driver.drain(exporter, source)

    assert seqs(exporter) == list(range(1, 2001))
    assert pipeline.status.lost == {}
    assert any("busy" in sentence for sentence in driver.said)


def test_one_bad_record_does_not_take_the_others_with_it(driver: Driver) -> None:
    def refuse_the_seventh(_: int, records: Sequence[Record]) -> Exception | None:
        return PermanentExportError("seq 7 is bad") if any(record.seq == 7 for record in records) else None

    source, exporter = MemorySource(steps(20)), FlakyExporter(refuse_the_seventh)

    pipeline = driver.drain(exporter, source)

    assert seqs(exporter) == [seq for seq in range(1, 21) if seq != 7]
    assert pipeline.status.lost == {"seq 7 is bad": 1}
    assert driver.marks[-1] == (20, {"seq 7 is bad": 1})


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit, asyncio.CancelledError])
def test_what_an_exporter_raises_unexpectedly_is_retried_a_few_times_and_then_counted(
    driver: Driver, kind: type[BaseException]
) -> None:
    def stumble(_: int, records: Sequence[Record]) -> BaseException | None:
        return kind("oops") if any(record.seq == 2 for record in records) else None

    source, exporter = MemorySource(steps(3)), FlakyExporter(stumble)

    pipeline = driver.drain(exporter, source)

    assert seqs(exporter) == [1, 3]
    assert pipeline.status.lost == {f"unexpected {kind.__name__}: oops": 1}
    assert not any("nothing is lost" in sentence or "is kept" in sentence for sentence in driver.said)
    assert any(
        "It is tried 3 times more; what it then still does not take is set aside" in said for said in driver.said
    )
    assert any("does not take step 2: unexpected" in sentence for sentence in driver.said)
    assert any("otel-ml replay run-1 --to test" in sentence for sentence in driver.said)


def test_an_exporter_that_empties_its_batch_takes_nothing_from_the_pipeline(driver: Driver) -> None:
    class Greedy(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            super().export([*records])
            records.clear()  # type: ignore[attr-defined]

    exporter = Greedy()

    pipeline = driver.drain(exporter, MemorySource(steps(5)))

    assert seqs(exporter) == [1, 2, 3, 4, 5]
    assert pipeline.status.delivered == 5


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


@pytest.mark.parametrize("error", [ConnectionRefusedError("no"), TimeoutError(), OSError(errno.ENOSPC, "full")])
def test_a_network_or_a_disk_that_an_exporter_does_not_hide_is_waited_for(driver: Driver, error: OSError) -> None:
    exporter = FlakyExporter(lambda call, _: error if call < 20 else None)

    pipeline = driver.drain(exporter, MemorySource(steps(3)))

    assert seqs(exporter) == [1, 2, 3]
    assert pipeline.status.lost == {}


def test_a_refused_batch_is_halved_and_not_sent_one_by_one(driver: Driver) -> None:
    def refuse_two(_: int, records: Sequence[Record]) -> Exception | None:
        return PermanentExportError("bad") if {17, 200} & {record.seq for record in records} else None

    source, exporter = MemorySource(steps(256)), FlakyExporter(refuse_two)

    pipeline = driver.drain(exporter, source)

    assert seqs(exporter) == [seq for seq in range(1, 257) if seq not in {17, 200}]
    assert pipeline.status.lost == {"bad": 2}
    assert exporter.calls < 40
    assert len([said for said in driver.said if "does not take" in said]) == 1  # once for a reason, not for a record


def test_where_the_backend_names_the_values_it_refuses_the_rest_of_the_row_is_stored(driver: Driver) -> None:
    def refuse(_: int, records: Sequence[Record]) -> Exception | None:
        names = {name for record in records if isinstance(record, StepRecord) for name in record.values}
        return PermanentExportError("no such name", names={"b"}) if "b" in names else None

    rows: list[Record] = [StepRecord(seq, "", "step", seq, 0, 0.0, {"a": 1.0, "b": 2.0}) for seq in (1, 2)]
    source, exporter = MemorySource([*rows, *steps(1, first=3)]), FlakyExporter(refuse)

    pipeline = driver.drain(exporter, source)

    assert [dict(record.values) for record in exporter.records if isinstance(record, StepRecord)] == [
        {"a": 1.0}, {"a": 1.0}, {"x": 3.0},
    ]  # fmt: skip
    assert pipeline.status.lost == {"no such name": 2}
    assert any("does not take 'b' of step 1: no such name" in said for said in driver.said)


def test_a_row_that_is_set_aside_counts_with_all_its_values(driver: Driver) -> None:
    row = StepRecord(1, "", "step", 1, 0, 0.0, {"a": 1.0, "b": 2.0, "c": 3.0})
    exporter = FlakyExporter(lambda *_: PermanentExportError("no"))

    assert driver.drain(exporter, MemorySource([row])).status.lost == {"no": 3}


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


@pytest.mark.parametrize("error", [RetryableExportError("no route to host"), SystemExit(3), asyncio.CancelledError()])
def test_an_exporter_that_cannot_start_is_started_again_until_it_can(driver: Driver, error: BaseException) -> None:
    class SlowStarter(RecordingExporter):
        starts = 0

        def start(self, run: RunInfo) -> None:
            self.starts += 1
            if self.starts < 4:
                raise error
            super().start(run)

    exporter = SlowStarter()

    driver.drain(exporter, MemorySource(steps(5)))

    assert seqs(exporter) == [1, 2, 3, 4, 5]
    assert exporter.run == driver.run


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
        (RetryableExportError("away"), 2, "away It is tried again"),
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
    class Batching(RecordingExporter):
        max_batch = 4
        max_delay = 30.0

        def __init__(self) -> None:
            super().__init__()
            self.batches: list[int] = []

        def export(self, records: Sequence[Record]) -> None:
            self.batches.append(len(records))
            super().export(records)

    source, exporter = MemorySource(steps(2)), Batching()
    pipeline = driver.start(exporter, source)

    source.add(*steps(7, first=3))
    eventually(lambda: pipeline.status.delivered == 8)
    pipeline.ask_to_stop(10)
    assert pipeline.join()

    assert exporter.batches == [4, 4, 1]


def test_the_end_of_a_run_is_delivered_at_once_whatever_a_batch_would_wait_for(driver: Driver) -> None:
    class Patient(RecordingExporter):
        max_delay = 1000.0

    source, exporter = MemorySource(steps(2)), Patient()
    pipeline = driver.start(exporter, source)

    source.add(RunStatus(3, 0.0, "finished"))

    eventually(lambda: pipeline.status.delivered == 3)
    assert seqs(exporter) == [1, 2, 3]


def test_records_that_are_no_longer_kept_are_counted_and_the_rest_goes_on(driver: Driver) -> None:
    source, exporter = MemorySource(steps(10)), RecordingExporter()
    source.first_seq = 6

    pipeline = driver.drain(exporter, source)

    assert seqs(exporter) == [6, 7, 8, 9, 10]
    assert sum(pipeline.status.lost.values()) == 5


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


def test_an_exporter_that_hangs_is_given_up_at_the_deadline(driver: Driver) -> None:
    released = threading.Event()

    class Hanging(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            released.wait(60)

    pipeline = driver.start(Hanging(), MemorySource(steps(1)))
    pipeline.ask_to_stop(0)

    stopped = pipeline.join()
    released.set()

    assert not stopped


def test_a_backend_that_is_away_at_the_end_keeps_its_place(driver: Driver) -> None:
    exporter = FlakyExporter(lambda *_: RetryableExportError("away", retry_after=3600))
    pipeline = driver.start(exporter, MemorySource(steps(5)))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.ask_to_stop(0.1)

    assert pipeline.join()
    assert pipeline.status.delivered == 0
    assert pipeline.status.lost == {}
    assert exporter.is_closed


def test_pauses_grow_stay_below_the_bound_and_respect_what_the_backend_asks() -> None:
    backoff = Backoff(RetryPolicy(initial_s=1.0, maximum_s=8.0), random.Random(1))
    draws = [Backoff(RetryPolicy(1.0, 8.0), random.Random(seed)) for seed in range(200)]

    rounds = [[found.pause() for found in draws] for _ in range(6)]

    assert [max(pauses) <= bound for pauses, bound in zip(rounds, (1, 2, 4, 8, 8, 8), strict=True)] == [True] * 6
    assert [max(pauses) > bound / 2 for pauses, bound in zip(rounds, (1, 2, 4, 8, 8, 8), strict=True)] == [True] * 6
    assert backoff.pause(retry_after=30.0) == 30.0


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


def test_what_was_set_aside_is_behind_the_mark_while_the_next_record_waits(driver: Driver) -> None:
    def first_refused_then_away(_: int, records: Sequence[Record]) -> Exception:
        return PermanentExportError("bad") if records[0].seq == 1 else RetryableExportError("away")

    pipeline = driver.start(FlakyExporter(first_refused_then_away), MemorySource(steps(2)))

    eventually(lambda: pipeline.status.delivered == 1)
    assert pipeline.status.lost == {"bad": 1}


def test_reasons_that_never_repeat_are_told_apart_up_to_a_hundred_and_all_are_counted(driver: Driver) -> None:
    exporter = FlakyExporter(lambda _, records: PermanentExportError(f"no {records[0].seq}"))

    lost = driver.drain(exporter, MemorySource(steps(130))).status.lost

    assert len(lost) == 101
    assert lost["for other reasons"] == 30
    assert sum(lost.values()) == 130


def test_being_asked_to_stop_ends_a_pause_and_the_next_try_comes_at_once(driver: Driver) -> None:
    away = RetryableExportError("away", retry_after=1000.0)
    exporter = FlakyExporter(lambda call, _: away if call == 1 else None)
    pipeline = driver.start(exporter, MemorySource(steps(3)))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.ask_to_stop(20)
    assert pipeline.join()

    assert seqs(exporter) == [1, 2, 3]
    assert (pipeline.behind, pipeline.status.problem) == (0, None)


def test_who_is_stopping_still_waits_between_two_tries_and_gives_up_at_the_deadline(driver: Driver) -> None:
    exporter = FlakyExporter(lambda *_: RetryableExportError("away", retry_after=1000.0))
    pipeline = driver.start(exporter, MemorySource(steps(3)))
    eventually(lambda: pipeline.status.state == "retrying")

    pipeline.ask_to_stop(0.3)
    assert pipeline.join()

    assert exporter.calls <= 3
    assert (pipeline.is_stopped, pipeline.behind) == (True, 3)


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
