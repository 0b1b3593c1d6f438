"""Findings of a real job, and what watching it may cost: nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import environment, processes, the_run_in
from tests.e2e.watched import STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.feature("M8", "yes", "nothing to switch on: watching may begin and end while the job runs")
def test_a_callback_that_raises_and_hangs_is_told_and_the_training_does_not_notice(tmp_path: Path) -> None:
    settings = {"OTEL_ML_EXPERIMENT_ID": "watched", "OTEL_ML_EXPORTERS": "jsonl", "WORLD_SIZE": 3}
    command = [sys.executable, "-m", "tests.e2e.watched", tmp_path]
    ranks = [(command, environment(RANK=rank, LOCAL_RANK=rank, **settings)) for rank in range(3)]

    with processes(ranks, tmp_path) as started:
        ended = [process.communicate(timeout=200) for process in started]

    assert [process.returncode for process in started] == [0, 0, 0]
    out, said = ended[0]
    assert out.splitlines()[:1] == ["told rank 1 work False"]
    assert "told rank 1 work True" in out
    assert out.splitlines()[-1] == "trained"
    assert "raised RuntimeError: a callback's mistake" in said
    run = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    assert run["done"] == (list(range(STEPS)), [3.0] * STEPS)
    assert "otel_ml/straggler/cost" in run
