"""Trials of a real Ray Tune, with `instrument_ray()` alone: each is one run, wherever and with whatever it goes on."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import otel_ml
from tests.e2e.jobs import environment, finished
from tests.waiting import eventually, whole_lines

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(600)]

STEPS = list(range(12))


class Trial(NamedTuple):
    """The run of a trial: its values, parameters in the order in which they came, and how its lives ended."""

    shown: Any
    params: list[dict[str, Any]]
    statuses: list[str]
    name: str


def trials_of(kind: str, tmp_path: Path) -> dict[float, Trial]:
    """Search; return the runs of both trials by the rate that each began with."""
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(OTEL_ML_DIR=tmp_path / "runs", RAY_TMPDIR=short, RAY_USAGE_STATS_ENABLED="0")
        finished([sys.executable, "-m", "tests.e2e.ray_tune_job", tmp_path / "results", kind], env, tmp_path)
    found = [read(run) for run in (tmp_path / "runs" / "search").iterdir() if "_" in run.name]
    return {trial.params[0]["rate"]: trial for trial in found}


def read(run: Path) -> Trial:
    rows = eventually(lambda: ended(run), timeout=60)
    params = [row["params"] for row in rows if "rate" in row.get("params", {})]
    name = (run / "state" / "name").read_text(encoding="utf-8").strip()
    return Trial(otel_ml.read(run), params, [row["status"] for row in rows if "status" in row], name)


def ended(run: Path) -> list[dict[str, Any]]:
    """Return the records of a run that has ended; none before."""
    rows = [json.loads(line) for line in whole_lines(run / "metrics.jsonl")]
    return rows if rows and rows[-1].get("status") in {"finished", "killed"} else []


def test_a_trial_that_goes_on_as_another_one_is_one_run_with_each_step_once(tmp_path: Path) -> None:
    worse, better = (trials_of("pbt", tmp_path)[rate] for rate in (0.1, 0.4))

    for trial in (worse, better):
        assert trial.shown["recorded"] == (STEPS, [1.0] * 12)
        assert set(trial.statuses) == {"running", "finished"}  # nobody is missed that has only paused
    assert better.shown["rate"] == (STEPS, [0.4] * 12)
    assert better.params == [{"rate": 0.4}]
    assert {worse.name[:11], better.name[:11]} == {"population_"}
    rates = worse.shown["rate"][1]
    assert rates[:4] == [0.1] * 4
    assert rates[4] != 0.1
    assert worse.params[-1] == {"rate": rates[-1]}


def test_trials_that_take_turns_in_one_process_are_a_run_each(tmp_path: Path) -> None:
    trials = trials_of("reused", tmp_path)

    for rate, trial in trials.items():
        assert trial.shown["recorded"] == (STEPS, [1.0] * 12)
        assert trial.shown["rate"][1][:4] == [rate] * 4
        assert trial.params[-1] == {"rate": trial.shown["rate"][1][-1]}
        assert set(trial.statuses) == {"running", "finished"}
    assert sorted(trials) == [0.1, 0.4]


def test_ray_train_in_a_trial_is_the_trials_run_with_both_ranks(tmp_path: Path) -> None:
    trials = trials_of("train", tmp_path)

    assert sorted(trials) == [0.1, 0.4]
    for rate, trial in trials.items():
        assert trial.shown["ranks"] == ([0, 1, 2, 3], [2.0] * 4)
        assert [trial.shown[f"own/rank_{rank}"][1] for rank in (0, 1)] == [[rate] * 4, [rate + 1] * 4]
        assert trial.shown["fitted"] == ([0], [rate])
        assert trial.shown["task/evaluated"] == ([0], [rate])
        assert trial.params == [{"rate": rate}]
