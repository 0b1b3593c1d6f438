"""What the demo prints at its end, in a terminal of 80 columns."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from otel_ml_service.demo.report import Report
from otel_ml_service.demo.summary import Findings
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import history
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
