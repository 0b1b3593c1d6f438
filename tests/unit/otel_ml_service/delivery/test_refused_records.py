from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from otel_ml_exporters import (
    PermanentExportError,
    Record,
    RetryableExportError,
    StepRecord,
)
from otel_ml_exporters.testing import FlakyExporter
from tests.unit.otel_ml_service.delivery.driver import Driver, MemorySource, seqs, steps
from tests.waiting import eventually


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


def test_records_of_a_batch_that_raises_whatever_is_in_it_are_not_tried_as_often_one_by_one(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = FlakyExporter(lambda *_: ValueError("odd"))

    pipeline = driver.drain(exporter, MemorySource(steps(8)))

    assert pipeline.status.lost == {"unexpected ValueError: odd": 8}
    assert exporter.calls == 4 + 2 + 4 + 8  # the batch with three more tries, halves, quarters, and each record
    assert len([said for said in caplog.messages if "raised something unexpected" in said]) == 1


def test_what_one_batch_was_given_up_for_is_tried_again_in_the_next_where_it_may_pass(driver: Driver) -> None:
    raised = 0

    def odd(_: int, records: Sequence[Record]) -> Exception | None:
        nonlocal raised
        found = {record.seq for record in records}
        raised += 7 in found
        return ValueError("odd") if 2 in found or (7 in found and raised <= 3) else None

    exporter = FlakyExporter(odd)
    exporter.max_batch = 4

    pipeline = driver.drain(exporter, MemorySource(steps(8)))

    assert seqs(exporter) == [1, 3, 4, 5, 6, 7, 8]
    assert pipeline.status.lost == {"unexpected ValueError: odd": 1}


def test_a_record_is_tried_again_by_itself_where_so_far_only_a_half_of_its_batch_has_raised_the_same(
    driver: Driver,
) -> None:
    with_the_second: list[int] = []

    def odd(_: int, records: Sequence[Record]) -> Exception | None:
        if len(records) == 4:
            return ValueError("too many")
        if any(record.seq == 2 for record in records):
            with_the_second.append(len(records))
        return ValueError("odd") if with_the_second in ([2], [2, 1], [2, 1, 1]) and records[-1].seq == 2 else None

    exporter = FlakyExporter(odd)

    pipeline = driver.drain(exporter, MemorySource(steps(4)))

    assert with_the_second == [2, 1, 1, 1]
    assert (seqs(exporter), pipeline.status.lost) == ([1, 2, 3, 4], {})


def test_a_backend_that_was_away_and_then_refuses_a_record_has_no_problem_any_more(driver: Driver) -> None:
    exporter = FlakyExporter(
        lambda call, _: RetryableExportError("away") if call == 1 else PermanentExportError("no such name")
    )

    pipeline = driver.start(exporter, MemorySource(steps(1)))

    eventually(lambda: pipeline.status.delivered == 1)
    assert (pipeline.status.lost, pipeline.status.state, pipeline.status.problem) == (
        {"no such name": 1},
        "running",
        None,
    )


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
