"""Each clause of the contract that is shipped: who keeps it passes, and who does not fails."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from otel_ml_exporters.contract import ExporterCase, ExporterContract
from otel_ml_exporters.contract.clauses import _by_name, _delivered, _killed_after, _position
from otel_ml_exporters.contract.stream import AT, Stream, every_kind, points, row, rows, run_in
from otel_ml_exporters.records import HistogramValue, Params, RunStatus, StepRecord, Summary, Table, Text
from tests.contract.lines import Lines, points_of

CLAUSES = {
    "test_what_was_exported_is_read_back_in_order": ["Turned", "Rounding", "FirstBatchAlone", "OfLastBatch"],
    "test_a_value_that_is_not_finite_takes_no_other_with_it": ["Whole"],
    "test_a_kind_of_record_without_a_place_is_ignored": ["FirstBatchAlone", "OfLastBatch"],
    "test_records_are_not_modified": ["Changing"],
    "test_the_next_life_goes_on_where_the_last_one_ended": ["AnotherPosition", "Beginning", "OfLastBatch"],
    "test_a_new_attempt_that_repeats_steps_has_its_values": ["OfFirstAttempt", "FirstBatchAlone"],
    "test_a_correction_of_an_earlier_step_is_stored": ["WithoutCorrections", "CorrectionsErase"],
    "test_every_thins_steps": ["EveryHundredth"],
    "test_shutdown_is_safe_before_start_and_twice": ["OnceClosed", "OnceStarted"],
    "test_an_export_after_shutdown_is_refused": ["Reopening"],
}
"""Clause → exporters of `lines.py` that do not keep it."""


def asked(clause: str, exporter: str, folder: Path) -> None:
    getattr(ExporterContract(), clause)(ExporterCase(f"tests.contract.lines:{exporter}", points_of), folder)


@pytest.mark.parametrize("clause", CLAUSES)
def test_who_keeps_a_clause_passes(clause: str, tmp_path: Path) -> None:
    asked(clause, "Lines", tmp_path)


@pytest.mark.parametrize(
    ("clause", "exporter"), [(clause, exporter) for clause, exporters in CLAUSES.items() for exporter in exporters]
)
def test_who_does_not_keep_a_clause_fails(clause: str, exporter: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        asked(clause, exporter, tmp_path)


def test_rows_are_delivered_as_by_a_service(tmp_path: Path) -> None:
    _delivered(Lines(), tmp_path, 600)

    assert list(points_of(run_in(tmp_path))) == points(rows(1, 600), float)


def test_the_rows_of_a_job_are_the_same_in_every_process() -> None:
    assert rows(2, 3) == [
        StepRecord(2, "trainer", "step", 2, 0, 1_700_000_002.0, {"loss": 0.5, "time/step": 2 / 3}),
        StepRecord(3, "trainer", "step", 3, 0, 1_700_000_003.0, {"loss": 1 / 3, "time/step": 1.0}),
    ]
    assert row(4, 2, {"x": 1.0}, attempt=1, amendment=True) == StepRecord(
        4, "trainer", "step", 2, 1, 1_700_000_004.0, {"x": 1.0}, amendment=True
    )
    stream = Stream(5)
    assert (stream.first_seq, stream.last_seq) == (1, 5)
    assert [record.seq for record in stream.read(0, 3)] == [1, 2, 3]
    assert [record.seq for record in stream.read(3, 3)] == [4, 5]
    assert stream.read(5, 3) == []


def test_one_record_of_each_kind_is_made() -> None:
    kinds = every_kind(7)

    assert [record.seq for record in kinds] == list(range(7, 13))
    assert max(Counter(map(type, kinds)).values()) == 1
    assert not any(isinstance(record, StepRecord) for record in kinds)
    assert points([*kinds, *rows(1, 1)], lambda value: 2 * value) == [
        ("loss", "step", 1, 2.0), ("time/step", "step", 1, 2 / 3),
    ]  # fmt: skip


def test_points_are_put_together_by_series() -> None:
    assert _by_name([("a", "step", 1, 0.5), ("b", "step", 1, 2.0), ("a", "step", 0, 1.0), ("a", "eval", 1, 3.0)]) == {
        ("a", "step"): [(1, "0.5"), (0, "1.0")], ("b", "step"): [(1, "2.0")], ("a", "eval"): [(1, "3.0")],
    }  # fmt: skip


def test_a_record_of_each_kind_says_something_that_a_backend_has_to_take() -> None:
    params, text, table, histogram, summary, status = every_kind(1)

    assert params == Params(1, AT, {"lr": 0.1, "net": {"layers": [1, 2]}})
    assert text == Text(2, AT, "sample", "step", 1, "a text, with ünïcode")
    assert table == Table(3, AT, "wrong", "step", 1, ("said", "sure"), ((3, 0.25), (8, None)))
    assert histogram == HistogramValue(4, AT, "weights", "step", 1, (-1.0, 0.0, 2.5), (3.0, 7.0))
    assert (summary, status) == (Summary(5, AT, {"test/accuracy": 0.9}), RunStatus(6, AT, "running"))


def test_an_exporter_is_asked_for_its_position(tmp_path: Path) -> None:
    assert _position(ExporterCase("tests.contract.lines:AnotherPosition", points_of), tmp_path) == 19
    assert _position(ExporterCase("tests.contract.lines:Lines", points_of), tmp_path) is None
    (run_in(tmp_path).dir / "lines.jsonl").write_text('["loss", "step", 1, 0.5]\n' * 3)
    assert _position(ExporterCase("tests.contract.lines:PositionOfItsFile", points_of), tmp_path) == 3


def test_a_writer_is_killed_once_it_has_stored_what_it_is_to_store(tmp_path: Path) -> None:
    case = ExporterCase("tests.contract.lines:Lines", points_of)

    last = _killed_after(case, tmp_path, 5)

    assert last >= 5
    assert int((run_in(tmp_path).dir.parents[2] / "mark").read_text()) >= last
    assert points(rows(1, last), float) == list(points_of(run_in(tmp_path)))[: 2 * last]
