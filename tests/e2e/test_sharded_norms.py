"""Norms of sharded and of copied models are those of the whole, without a collective of ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import ROOT, environment, the_run_in, torchrun


@pytest.mark.e2e
@pytest.mark.timeout(180)
@pytest.mark.feature(
    "M18", "better", "global and per-parameter norms of FSDP shards and DDP copies, without a collective"
)
def test_norms_of_two_ranks_are_those_that_torch_computes_of_the_whole(tmp_path: Path) -> None:
    command = [str(part) for part in torchrun(2, ROOT / "tests" / "e2e" / "norms_job.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))

    shown = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))

    for name, value in expected.items():
        steps = [0, 1] if name.startswith("inspect/") else [0, 1, 2]
        assert shown[name] == (steps, [pytest.approx(value, rel=1e-5)] * len(steps)), name
    outputs = shown["inspect/2/output/std"][1]
    assert outputs[0] == pytest.approx(outputs[1], rel=1e-5)
