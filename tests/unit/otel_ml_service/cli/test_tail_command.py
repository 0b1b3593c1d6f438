from __future__ import annotations

from pathlib import Path

from otel_ml_exporters.records import RunStatus, StepRecord, Text
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import Run


def test_tail_prints_the_last_steps_of_a_finished_run_and_ends(otel_ml: Run, tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=12))

    status, out, _ = otel_ml("tail", "01abc", "loss", "--lines", "3")

    assert status == 0
    assert [line.split()[:2] for line in out.splitlines()] == [["step", "10"], ["step", "11"], ["status", "finished"]]


def test_tail_shows_what_the_program_recorded_unless_more_is_asked_for(otel_ml: Run, tmp_path: Path) -> None:
    row = {"loss": 1.0, "time/exposed/forward": 0.1, "generator/otel_ml/attempt": 1.0}
    write_run(tmp_path, "01abc", [StepRecord(1, "trainer", "step", 0, 0, 1.0, row)])

    _, plain, _ = otel_ml("tail", "01abc", "--no-follow")
    _, asked, _ = otel_ml("tail", "01abc", "*exposed*", "--no-follow")

    assert plain.split() == ["step", "0", "loss", "1"]
    assert "time/exposed/forward 100 ms" in asked


def test_of_a_long_text_tail_shows_the_beginning(otel_ml: Run, tmp_path: Path) -> None:
    texts = ["x" * 5_000_000, "a short one\nof two lines", ""]
    write_run(tmp_path, "01abc", [Text(seq, 1.0, "sample", "step", seq, text) for seq, text in enumerate(texts, 1)])

    _, out, _ = otel_ml("tail", "01abc", "--no-follow")

    assert out.splitlines() == [f"text sample: {'x' * 200}… (5,000,000 characters)", "text sample: a short one",
                                "text sample: "]  # fmt: skip


def test_tail_takes_globs(otel_ml: Run, tmp_path: Path) -> None:
    values = {"eval/acc": 0.5, "eval/loss": 1.0, "loss": 2.0}
    write_run(tmp_path, "01abc", [StepRecord(1, "trainer", "step", 0, 0, 0.0, values), RunStatus(2, 0.0, "finished")])

    _, out, _ = otel_ml("tail", "01abc", "eval/*")

    assert out.splitlines()[0].split() == ["step", "0", "eval/acc", "0.5", "eval/loss", "1"]


def test_tail_says_how_many_writers_a_step_lacks(otel_ml: Run, tmp_path: Path) -> None:
    rows = [StepRecord(n, "trainer", "step", n, 0, 1.0, {"loss": 1.0}, writers_missing=n) for n in (1, 2)]
    write_run(tmp_path, "01abc", rows)

    _, out, _ = otel_ml("tail", "01abc", "--no-follow")

    assert [line.partition("[")[2] for line in out.splitlines()] == ["1 writer missing]", "2 writers missing]"]
