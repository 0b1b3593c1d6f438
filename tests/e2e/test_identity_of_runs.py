"""One job is one run, and two jobs are two."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import all_finished, environment, finished, processes, runs_in, torchrun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LOOP = ["-m", "tests.e2e.loop", 5]


def test_the_same_torchrun_command_twice_is_two_runs(tmp_path: Path) -> None:
    command = torchrun(2, *LOOP)
    for _ in range(2):
        finished(command, environment(), tmp_path)

    runs = runs_in(tmp_path / "otel-ml-runs")
    assert len(runs) == 2
    assert [otel_ml.read(run)["tokens"] for run in runs] == [([0, 1, 2, 3, 4], [2.0] * 5)] * 2


def test_two_jobs_at_once_on_one_host_do_not_mix(tmp_path: Path) -> None:
    commands = [(torchrun(2, *LOOP), environment()) for _ in range(2)]

    with processes(commands, tmp_path) as started:
        all_finished(started)

    runs = runs_in(tmp_path / "otel-ml-runs")
    assert [otel_ml.read(run)["tokens"] for run in runs] == [([0, 1, 2, 3, 4], [2.0] * 5)] * 2


def test_two_single_processes_are_two_runs(tmp_path: Path) -> None:
    for _ in range(2):
        finished([sys.executable, *LOOP], environment(), tmp_path)

    assert len(runs_in(tmp_path / "otel-ml-runs")) == 2
