"""The examples of searches: a run for each trial, with the values of no other."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import environment, finished
from tests.examples.running import EXAMPLES
from tests.waiting import eventually


def expected(rate: float) -> list[float]:
    """Return the losses of a trial."""
    weight, losses = 4.0, []
    for _ in range(20):
        weight -= rate * 2 * weight
        losses.append(weight**2)
    return losses


def loss_of(run: Path) -> tuple[list[int], list[float]] | None:
    """Return the loss of a run; None while its service is writing it."""
    found = otel_ml.read(run).get("loss") if (run / "metrics.jsonl").exists() else None
    return found if found is not None and len(found[0]) == 20 else None


def trials_of(example: str, cwd: Path, *arguments: str) -> dict[float, list[float]]:
    """Run an example; return the losses of each of its runs by the rate among its parameters."""
    environ = environment(OTEL_ML_EXPORTERS="jsonl", RAY_USAGE_STATS_ENABLED="0", OTEL_ML_DIR=cwd / "runs")
    finished([sys.executable, EXAMPLES / example, *arguments], environ, cwd)
    found: dict[float, list[float]] = {}
    for run in (cwd / "runs").glob("*/*/"):
        steps, losses = eventually(lambda run=run: loss_of(run))
        assert steps == list(range(20))
        assert rate_of(run) not in found
        found[rate_of(run)] = losses
    return found


def rate_of(run: Path) -> float:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    [rate] = {line["params"]["rate"] for line in lines if "rate" in line.get("params", {})}
    return float(rate)


@pytest.mark.timeout(300)
def test_four_trials_of_ray_tune_are_four_runs(tmp_path: Path) -> None:
    found = trials_of("ray_tune.py", tmp_path)

    assert found == {rate: pytest.approx(expected(rate)) for rate in (0.01, 0.05, 0.1, 0.4)}


@pytest.mark.timeout(300)
def test_three_jobs_of_a_hydra_sweep_are_three_runs(tmp_path: Path) -> None:
    found = trials_of("hydra_multirun.py", tmp_path, "--multirun", "+rate=0.05,0.1,0.4")

    assert found == {rate: pytest.approx(expected(rate)) for rate in (0.05, 0.1, 0.4)}


@pytest.mark.timeout(300)
def test_two_jobs_of_submitit_are_two_runs_each_of_both_its_tasks(tmp_path: Path) -> None:
    found = trials_of("submitit_jobs.py", tmp_path)

    assert found == {rate: pytest.approx(expected(rate)) for rate in (0.05, 0.1)}
    for run in (tmp_path / "runs").glob("*/*/"):
        assert otel_ml.read(run)["tasks"] == (list(range(20)), [2.0] * 20)
