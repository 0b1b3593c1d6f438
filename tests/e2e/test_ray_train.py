"""Ray Train's workers are the ranks of the driver's run, with a real `TorchTrainer`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import environment, finished, the_run_in
from tests.waiting import whole_lines

STEPS = 4

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(300)]


def test_workers_of_ray_train_are_the_ranks_of_the_trainer_in_the_drivers_run(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(OTEL_ML_DIR=tmp_path / "runs", RAY_TMPDIR=short)
        finished([sys.executable, "-m", "tests.e2e.ray_train_job", tmp_path / "storage", STEPS], env, tmp_path)

    run = the_run_in(tmp_path / "runs")
    statuses = [row["status"] for row in map(json.loads, whole_lines(run / "metrics.jsonl")) if "status" in row]
    assert statuses == ["finished"]  # every worker said goodbye before Ray killed it
    shown = otel_ml.read(run)
    steps = list(range(STEPS))
    assert shown["ranks"] == (steps, [2.0] * STEPS)
    assert (shown["own/rank_0"], shown["own/rank_1"]) == ((steps, [0.0] * STEPS), (steps, [1.0] * STEPS))
    assert shown["square"] == (steps, [step**2 + 0.5 for step in steps])
    assert shown["time/forward"][0] == steps
    assert shown["driver/fitted"] == ([0], [1.0])
