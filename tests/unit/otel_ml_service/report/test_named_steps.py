"""Which steps a page has the spans of, beyond the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml_exporters.records import Span, SpanBatch, StepRecord, Table
from otel_ml_service.findings.finding import COLUMNS
from otel_ml_service.report import contents as module
from otel_ml_service.report.contents import contents
from otel_ml_service.report.named_steps import named_steps, whole_steps
from otel_ml_service.report.step_view import by_step
from otel_ml_service.stored_runs.read_records import records
from tests.recorded_run import write_run


def span(step: int, rank: int = 0, axis: str = "step") -> Span:
    begin = step * 10**9 + 1
    return Span("0" * 32, f"{step:015}{rank}", None, "forward", begin, begin + 10**8, "trainer", rank, axis, step)


def test_of_spans_that_are_all_held_every_step_is_whole() -> None:
    run = contents("run-1", "pages", [SpanBatch(1, [span(step) for step in range(3)])])

    assert whole_steps(run, by_step(run.spans)).keys() == {("trainer", "step", step) for step in range(3)}


def test_the_oldest_step_of_each_axis_is_not_whole_where_older_spans_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SPANS", 6)  # a bound that one test can reach
    spans = [
        *(span(step, axis="eval") for step in (1, 2)),
        *(span(step, rank) for step in range(4, 6) for rank in (0, 1)),
    ]
    run = contents("run-1", "pages", [SpanBatch(1, [span(0)]), SpanBatch(2, spans)])

    assert run.is_cut
    assert whole_steps(run, by_step(run.spans)).keys() == {("trainer", "eval", 2), ("trainer", "step", 5)}


def test_steps_that_findings_name_are_read_from_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SPANS", 2)  # a bound that one test can reach

    def slow(since: int) -> tuple[object, ...]:
        return ("warning", "slow", 0, "forward", since, since, 1.0, 0.5, 1.0, "forward", since, "ab", "cd")

    table = Table(2, 1.0, "otel_ml/findings", "step", 9, COLUMNS, (slow(1), slow(7), slow(9)))
    rows = [StepRecord(3 + step, "trainer", "step", step, 0, 1.0, {"time/step": 1.0}) for step in range(10)]
    folder = write_run(tmp_path, "01abc", [SpanBatch(1, [span(step) for step in range(8)]), table, *rows])

    run = contents("01abc", "digits", records(folder))
    found = named_steps(folder, run)

    assert {name: [one.step for one in spans] for name, spans in found.items()} == {("trainer", "step", 1): [1]}
