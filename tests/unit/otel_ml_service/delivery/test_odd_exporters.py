"""Exporters of others with defects of any kind: none stops without a word, and one record costs no other."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_ml_exporters import PermanentExportError, Record, RetryableExportError, RunInfo, RunStatus
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.delivery.pipeline import Pipeline
from tests.unit.otel_ml_service.delivery.driver import Driver, MemorySource, steps
from tests.waiting import eventually


class MuteError(Exception):
    """An exception without a text."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


def with_member(name: str, value: object) -> RecordingExporter:
    """An exporter of which a member is `value`, or what `value()` returns or raises."""
    member = property(lambda _: value()) if callable(value) else value
    found: RecordingExporter = type("Odd", (RecordingExporter,), {name: member})()
    return found


def refusing(seq: int, error: Callable[[], BaseException]) -> RecordingExporter:
    """An exporter that raises `error()` for one record, always."""

    class Refusing(RecordingExporter):
        def export(self, records: Sequence[Record]) -> None:
            if any(record.seq == seq for record in records):
                raise error()
            super().export(records)

    return Refusing()


def raises(error: BaseException) -> Callable[..., Any]:
    def raising(*_: object) -> Any:
        raise error

    return raising


def answered(pipeline: Pipeline) -> dict[str, Any]:
    """What the service answers of it."""
    status = pipeline.status
    found = {"delivered": status.delivered, "lost": dict(status.lost), "url": status.url, "problem": status.problem}
    read: dict[str, Any] = json.loads(json.dumps(found))
    return read


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MuteError, "unexpected MuteError: <MuteError>"),
        (lambda: PermanentExportError(MuteError()), "<PermanentExportError>"),  # type: ignore[arg-type]
        (lambda: PermanentExportError("no " + "x" * 1_000_000), f"no {'x' * 997}…"),
        (lambda: ValueError("x" * 1_000_000), f"unexpected ValueError: {'x' * 1000}…"),
        (lambda: PermanentExportError("no", names="y"), "no"),
        (lambda: KeyboardInterrupt(), "unexpected KeyboardInterrupt: "),
    ],
)
def test_whatever_one_record_raises_it_is_set_aside_with_a_reason_of_bounded_length(
    driver: Driver, error: Callable[[], BaseException], reason: str
) -> None:
    exporter, source = refusing(5, error), MemorySource(steps(10))
    pipeline = driver.drain(exporter, source)

    assert [record.seq for record in exporter.records] == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert answered(pipeline)["lost"] == {reason: 1}
    assert max(map(len, driver.said)) < 2000


def test_a_value_that_is_refused_by_its_name_is_lost_once_whatever_becomes_of_its_record(driver: Driver) -> None:
    exporter = refusing(5, lambda: PermanentExportError("no", names="x"))
    pipeline = driver.drain(exporter, MemorySource(steps(10)))

    stored = sum(len(record.values) for record in exporter.records)  # type: ignore[attr-defined]
    assert stored + sum(answered(pipeline)["lost"].values()) == 10


@pytest.mark.parametrize("name", ["url", "notice", "max_batch", "every", "max_delay", "is_intact"])
def test_a_member_that_raises_stops_nothing_without_a_word(driver: Driver, name: str) -> None:
    pipeline = driver.start(with_member(name, raises(ValueError("not on this machine"))), MemorySource(steps(3)))

    eventually(lambda: any("not on this machine" in sentence for sentence in driver.said))
    assert answered(pipeline)["delivered"] == 0
    assert not pipeline.is_stopped


def test_after_a_member_that_raises_once_records_go_on_where_they_were(driver: Driver) -> None:
    class Odd(RecordingExporter):
        @property
        def is_intact(self) -> bool:
            if self is made[0] and self.records:
                raise ValueError("not on this machine")
            return True

    made: list[Odd] = []

    def make() -> Odd:
        made.append(Odd())
        return made[-1]

    source = MemorySource(steps(5))
    source.first_seq = 2  # the first one is lost
    pipeline = driver.start_with(make, source)
    eventually(lambda: len(made) == 2)
    source.add(*steps(3, first=6))
    eventually(lambda: pipeline.status.delivered == 8)

    assert [record.seq for exporter in made for record in exporter.records] == [2, 3, 4, 5, 6, 7, 8]
    assert sum(pipeline.status.lost.values()) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_batch", 0), ("max_batch", -1), ("max_batch", "5"), ("every", 2.5), ("every", None), ("max_delay", math.inf)],
)
def test_a_setting_of_which_no_batch_can_be_made_is_said(driver: Driver, name: str, value: object) -> None:
    pipeline = driver.start(with_member(name, value), MemorySource(steps(3)))

    eventually(lambda: any(name in sentence and repr(value) in sentence for sentence in driver.said))
    assert not pipeline.is_stopped


@pytest.mark.parametrize(("name", "value"), [("max_batch", "5"), ("url", raises(ValueError("not on this machine")))])
def test_an_exporter_that_was_started_and_cannot_be_used_is_shut_down_before_another_one_is_made(
    driver: Driver, name: str, value: object
) -> None:
    made: list[RecordingExporter] = []

    def make() -> RecordingExporter:
        assert all(each.is_closed for each in made), "it may have locked what this one opens"
        made.append(with_member(name, value))
        return made[-1]

    pipeline = driver.start_with(make, MemorySource(steps(3)))
    eventually(lambda: len(made) > 2)

    assert pipeline.status.problem is not None
    assert "AssertionError" not in pipeline.status.problem


def test_an_exporter_that_could_not_be_started_is_shut_down_before_another_one_is_made(driver: Driver) -> None:
    class Half(RecordingExporter):
        def start(self, run: RunInfo) -> None:
            raise RetryableExportError("one of two files is open by now")

    made: list[Half] = []

    def make() -> Half:
        assert all(each.is_closed for each in made), "else each try leaves a file open"
        made.append(Half())
        return made[-1]

    pipeline = driver.start_with(make, MemorySource(steps(3)))
    eventually(lambda: len(made) > 2)

    assert pipeline.status.problem == "one of two files is open by now"
    assert len(driver.said) == 1


def test_a_notice_that_cannot_be_told_after_an_export_has_nothing_stored_twice(driver: Driver) -> None:
    class Odd(RecordingExporter):
        @property
        def notice(self) -> str | None:
            if self.records:
                raise ValueError("not on this machine")
            return None

    exporter = Odd()
    driver.drain(exporter, MemorySource(steps(600)))

    assert [record.seq for record in exporter.records] == list(range(1, 601))
    assert ["not on this machine" in sentence for sentence in driver.said] == [True]


class OwnRefusalError(PermanentExportError):
    """A plug-in's own, which says nothing of names."""

    def __init__(self, code: int) -> None:
        self.code = code


class OwnFailureError(RetryableExportError):
    """A plug-in's own, which says nothing of pauses."""

    def __init__(self, code: int) -> None:
        self.code = code


@pytest.mark.parametrize("names", [None, 5, ["absent", 5], {"absent": 1}])
def test_names_of_refused_values_are_any_texts(driver: Driver, names: object) -> None:
    def refusal() -> PermanentExportError:
        error = PermanentExportError("no")
        error.names = names  # type: ignore[assignment]
        return error

    exporter = refusing(5, refusal)
    pipeline = driver.drain(exporter, MemorySource(steps(10)))

    assert answered(pipeline)["lost"] == {"no": 1}
    assert [record.seq for record in exporter.records] == [1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_an_exception_of_a_plug_in_that_leaves_out_what_ours_has_is_what_it_is(driver: Driver) -> None:
    class Own(RecordingExporter):
        was_away = False

        def export(self, records: Sequence[Record]) -> None:
            if not self.was_away:
                self.was_away = True
                raise OwnFailureError(503)
            if any(record.seq == 5 for record in records):
                raise OwnRefusalError(413)
            super().export(records)

    exporter = Own()
    pipeline = driver.drain(exporter, MemorySource(steps(10)))

    assert [record.seq for record in exporter.records] == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert answered(pipeline)["lost"] == {"413": 1}


@pytest.mark.parametrize("value", [Path("/runs"), b"http", 5])
def test_an_address_or_notice_that_is_no_text_is_shown_as_one(driver: Driver, value: object) -> None:
    pipeline = driver.drain(with_member("url", value), MemorySource(steps(3)))
    assert answered(pipeline)["url"] == str(value)
    driver.drain(with_member("notice", value), MemorySource(steps(3)))
    assert driver.said == [str(value)]


@pytest.mark.parametrize("position", [np.int64(2), -1, True])
def test_a_position_is_any_whole_number(driver: Driver, position: object) -> None:
    class Behind(RecordingExporter):
        def position(self) -> int | None:
            return position  # type: ignore[return-value]

    exporter, source = Behind(), MemorySource(steps(5))
    driver.drain(exporter, source)

    assert [record.seq for record in exporter.records] == list(range(max(0, int(position)) + 1, 6))  # type: ignore[call-overload]
    assert {type(seq) for seq, _ in driver.marks} == {int}


def test_a_position_that_is_no_whole_number_is_said(driver: Driver) -> None:
    class Behind(RecordingExporter):
        def position(self) -> int | None:
            return "5"  # type: ignore[return-value]

    driver.start(Behind(), MemorySource(steps(5)))
    eventually(lambda: any("TypeError" in sentence for sentence in driver.said))


@pytest.mark.parametrize("pause", [math.nan, -5, "soon", datetime.timedelta(seconds=1), [1]])
def test_a_pause_that_is_no_number_is_one_of_ours(driver: Driver, pause: object) -> None:
    class Busy(RecordingExporter):
        was_asked = False

        def export(self, records: Sequence[Record]) -> None:
            if not self.was_asked:
                self.was_asked = True
                raise RetryableExportError("busy", retry_after=pause)  # type: ignore[arg-type]
            super().export(records)

    exporter = Busy()
    driver.drain(exporter, MemorySource(steps(3)))
    assert [record.seq for record in exporter.records] == [1, 2, 3]


@pytest.mark.parametrize("name", ["start", "force_flush", "shutdown"])
def test_an_exception_without_a_text_is_named_by_its_type(driver: Driver, name: str) -> None:
    exporter = type("Odd", (RecordingExporter,), {name: raises(MuteError())})()
    pipeline = driver.start(exporter, MemorySource(steps(3)))
    eventually(lambda: pipeline.status.delivered == 3 or any("MuteError" in sentence for sentence in driver.said))
    pipeline.ask_to_stop(1)
    assert pipeline.join()
    assert any("MuteError" in sentence for sentence in driver.said)


def test_an_exporter_that_cannot_flush_is_shut_down_all_the_same_and_not_told_that_the_run_has_ended(
    driver: Driver,
) -> None:
    class FullDisk(RecordingExporter):
        def position(self) -> int | None:
            return len(self.records)

        def force_flush(self, timeout: float) -> None:
            raise OSError("no space left")

    exporter = FullDisk()
    driver.drain(exporter, MemorySource([*steps(3), RunStatus(4, 0.0, "finished")]))

    assert (exporter.is_closed, exporter.ended_with) == (True, None)
    assert any("no space left" in sentence for sentence in driver.said)
