"""What the demo prints at its end, in a terminal of 80 columns."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from otel_ml_service.demo.report import Report
from otel_ml_service.demo.summary import Findings
from otel_ml_service.demo.verify import Comparison
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import SeriesName, history
from otel_ml_service.why.facts import Slow
from tests.recorded_run import digits_records, write_run


def printed(run: RunFolder, backends: tuple[str, ...] = ("jsonl", "tensorboard")) -> list[str]:
    text = io.StringIO()
    report = Report(Console(file=text, width=80))
    slow = Slow("", "step", "slow", 2, "rank 2", "forward", 40, 80, True, extra_s=0.047, cost_s=1.93, saved_s=0.0465)
    report.findings(Findings(4, 240, 0.96, 12, slow, incomplete=[], lost={}, corrected=0, run=history([])))
    report.where(run, backends)
    return text.getvalue().splitlines()


def test_every_line_fits_into_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    lines = printed(write_run(tmp_path / "otel-ml-runs", "one", digits_records(steps=2)))

    assert [line for line in lines if len(line) > 80] == []


def test_commands_that_are_all_long_stand_below_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    lines = printed(write_run(tmp_path / ("deep" * 10), "one", digits_records(steps=2)))

    assert len([line for line in lines if "otel-ml" in line and "  # " in line]) == 5


def test_commands_name_the_folder_where_it_is_not_the_default_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    base = tmp_path / "of the team"

    commands = [line for line in printed(write_run(base, "one", digits_records(steps=2))) if "otel-ml" in line]

    assert len(commands) == 5
    for command in commands:
        words = shlex.split(command, comments=True)
        assert words[words.index("--dir") + 1] == "of the team"


def lines_of(found: Findings) -> list[str]:
    text = io.StringIO()
    Report(Console(file=text, width=200)).findings(found)
    return text.getvalue().splitlines()


def test_a_demo_without_a_fault_is_four_lines() -> None:
    slow = Slow("", "step", "slow", 2, "rank 2", "forward", 40, 80, True, extra_s=0.047, cost_s=1.93, saved_s=0.0465)

    assert lines_of(Findings(4, 240, 0.96, 12, slow, incomplete=[], lost={}, corrected=3, run=history([]))) == [
        "",
        "What the recorded data say",
        "  ✓ accuracy    96 % on digits it never saw, after 240 steps; 12 evaluations",
        "  ✓ slow        rank 2 was slow in forward, steps 40-80",
        "                +47 ms a step, 1.93 s in all",
        "                without it a step is 46.5 ms shorter",
        "  ✓ lost        nothing: every step has the samples of all 4 ranks",
        "  · amended     3 values",
    ]


def test_a_demo_that_failed_says_at_what() -> None:
    lost = {"otel_ml/lost/jsonl": 1234.0}

    assert lines_of(Findings(4, 240, None, 0, None, incomplete=[7, 8], lost=lost, corrected=0, run=history([]))) == [
        "",
        "What the recorded data say",
        "  ✗ accuracy    no evaluation was recorded",
        "  · slow        nobody stands out",
        "  ✗ lost        otel_ml/lost/jsonl 1,234",
        "  ✗ lost        samples of some rank in 2 steps, first 7",
        "  · amended     0 values",
    ]


@pytest.mark.parametrize(("accuracy", "line"), [(0.9, "  ✓ accuracy    90 %"), (0.899, "  ✗ accuracy    89.9 %")])
def test_an_accuracy_of_90_percent_is_good(accuracy: float, line: str) -> None:
    found = lines_of(Findings(4, 240, accuracy, 12, None, incomplete=[], lost={}, corrected=0, run=history([])))

    assert found[2].startswith(line)


def test_each_backend_is_told_with_what_it_holds_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = RunFolder(tmp_path / "runs" / "digits" / "one")
    (tmp_path / "runs" / "wandb" / "offline-run-7-one").mkdir(parents=True)
    differing = [(SeriesName("step", "loss"), 3), (SeriesName("step", "loss"), 4)]
    compared = {
        "jsonl": Comparison("jsonl", 1234, [], 0, 0),
        "tensorboard": Comparison("tensorboard", 1234, [], 2, 2),
        "mlflow": Comparison("mlflow", 1232, differing, 0, 0),
        "wandb": Comparison("wandb", 1234, [], 3, 1),
        "other": "It holds no run.",
    }
    text = io.StringIO()

    Report(Console(file=text, width=200)).backends(run, compared, missing=["trackio"])

    assert text.getvalue().splitlines() == [
        "",
        "One run in each backend",
        "  ✓ jsonl       1,234 of 1,234 values identical",
        "                runs/digits/one/metrics.jsonl",
        "  ✓ tensorboard 1,234 of 1,234 values identical as float32, 2 amended",
        "                runs/digits/one/tensorboard",
        "  ✗ mlflow      2 of 1,234 values differ, first 'loss' at step 3",
        "                runs/mlflow.db",
        "  ✗ wandb       3 values beyond one a point, 1 were amended",
        "                runs/wandb/offline-run-7-one",
        "  ✗ other       It holds no run.",
        "                runs/digits/one/other",
        "  · trackio     not installed: pip install 'otel-ml[trackio]'",
    ]


def test_what_to_type_next_names_the_viewers_that_were_written_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path / "runs"))
    text = io.StringIO()

    run = RunFolder(tmp_path / "runs" / "digits" / "one")
    Report(Console(file=text, width=200)).where(run, ("jsonl", "mlflow", "wandb"))

    assert text.getvalue().splitlines() == [
        "",
        "Look at it",
        "  otel-ml ui                                        # every run, in the browser",
        "  otel-ml why latest                                # what made steps slow",
        "  otel-ml report latest                             # the run's page as a file",
        "  otel-ml show latest loss evaluator/eval/accuracy  # curves, here",
        "  otel-ml open latest --with mlflow                 # in the browser",
        "  wandb sync runs/wandb                             # to your account",
    ]
