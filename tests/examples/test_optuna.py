"""`examples/optuna_threads.py`: trials in threads are runs of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import otel_ml
from tests.e2e.jobs import environment
from tests.examples.running import EXAMPLES


def test_each_trial_of_a_study_in_threads_is_a_run_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "optuna_threads.py"],
        cwd=tmp_path,
        env=environment(OTEL_ML_EXPORTERS="jsonl"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    losses = []
    for folder in (tmp_path / "otel-ml-runs" / "optuna").iterdir():
        shown = otel_ml.read(folder)
        if "best" in shown:
            best = shown["best"]
            continue
        steps, values = shown["loss"]
        assert steps == list(range(20))
        assert values[0] == 16.0
        ratio = values[1] / values[0]
        assert all(abs(after / before - ratio) < 1e-9 for before, after in pairwise(values))
        losses.append(values[-1])
    assert len(losses) == 8
    assert len(set(losses)) == 8
    assert best[0] == list(range(8))
    assert best[1][-1] >= min(losses)
    said = re.fullmatch(r"best: trial-\d, loss (\S+), lr \S+\n", done.stdout)
    assert said is not None
    assert abs(float(said[1]) / min(losses) - 1) < 0.01
