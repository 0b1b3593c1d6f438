"""ROLL's tracker and metrics, read back from every backend."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import ROOT, all_finished, answer_of, environment, processes, scalars_in, the_run_in

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RANK = """
import os
import numpy as np
from otel_ml.compat.roll import create_tracker

rank = int(os.environ["RANK"])
tracker = create_tracker("tensorboard,wandb", {"lr": 1e-6, "roles": ["actor", "critic"]}, project="roll")
for step in range(3):
    values = [float(step), 10.0 * rank] if rank else np.array([1.0], np.float32)
    keys = ("actor/pg_loss@sum", "critic/score/max", "actor/kl")
    tracker.log({**dict.fromkeys(keys, values), "note": "text"}, step=step)
tracker.finish()
"""


@pytest.mark.feature("R6", "yes", "log() never waits for a backend; finish() drains")
def test_lists_of_several_ranks_are_reduced_exactly_in_each_backend(tmp_path: Path) -> None:
    commands = [
        (
            [sys.executable, "-c", RANK],
            environment(OTEL_ML_EXPERIMENT_ID="roll", RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2),
        )
        for rank in range(2)
    ]

    with processes(commands, tmp_path) as started:
        all_finished(started)

    run = the_run_in(tmp_path / "otel-ml-runs")
    for backend in ("jsonl", "tensorboard", "wandb"):
        stored = scalars_in(backend, run)
        assert stored["actor/pg_loss"] == {step: 11.0 + step for step in range(3)}, backend
        assert stored["critic/score/max"] == dict.fromkeys(range(3), 10.0), backend
        expected = pytest.approx({step: (11 + step) / 3 for step in range(3)}, rel=1e-6)
        assert stored["actor/kl"] == expected, backend
        assert not [name for name in stored if "@" in name], backend
    assert float(answer_of("jsonl", run)["params"]["lr"]) == 1e-6
    assert ["note", 0, "text"] in answer_of("jsonl", run)["texts"]


def test_the_example_logs_every_family_and_prints_json(tmp_path: Path) -> None:
    program = ROOT / "examples" / "migrate" / "roll_pipeline.py"

    done = subprocess.run(
        [sys.executable, program],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )

    shown = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    for name in ("critic/score/mean", "tokens/response_length/mean", "system/samples", "time/rollout", "val/score/max"):
        assert shown[name][0] == list(range(5)), name
    assert shown["actor/pg_loss"] == (list(range(5)), [0.75] * 5)
    lines = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("metrics_tag:")]
    assert [json.loads(line)["step"] for line in lines] == list(range(5))
