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


PROGRAM = """
import sys, otel_ml
with otel_ml.init("digits", id=sys.argv[1], exporters="jsonl"):
    for step in range(int(sys.argv[2]), int(sys.argv[3])):
        otel_ml.log({"loss": 1.0}, step=step)
    if "wrong" in sys.argv:
        otel_ml.log({"bad": "a text"})
    otel_ml.flush(60)  # the service is up: who ends before it is says something else
"""


@pytest.mark.parametrize("run", ["exp 7", "a%20b", "q?x", "h#x", "sla/sh", "nü"])
def test_whatever_a_run_is_called_it_says_what_was_wrong_and_how_it_ended(run: str, tmp_path: Path) -> None:
    said = finished([sys.executable, "-c", PROGRAM, run, 0, 2, "wrong"], environment(), tmp_path)

    assert "'bad'" in said
    assert "2 values recorded, 2 delivered, 0 lost; not recorded: bad_value: 1" in said


def test_who_goes_on_with_a_run_is_not_told_what_its_first_launch_was_told(tmp_path: Path) -> None:
    launches = [[0, 2, "wrong"], [2, 4]]
    first, second = (
        finished([sys.executable, "-c", PROGRAM, "one", *launch], environment(), tmp_path) for launch in launches
    )

    assert "'bad'" in first
    assert "'bad'" not in second
    assert "4 values recorded" in second
    (found,) = runs_in(tmp_path / "otel-ml-runs")
    assert otel_ml.read(found)["loss"] == (list(range(4)), [1.0] * 4)
