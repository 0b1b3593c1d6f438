"""torchforge's calls in several processes, read back from every backend."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import (
    ROOT,
    all_finished,
    answer_of,
    environment,
    finished,
    processes,
    scalars_in,
    the_run_in,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RANK = """
import asyncio, os
from otel_ml.compat.forge import MetricCollector, Reduce, record_metric

rank = int(os.environ["RANK"])
CONFIG = {
    "tensorboard": {"logging_mode": "global_reduce"},
    "mlflow": {"logging_mode": "per_rank_reduce"},
}

async def main():
    collector = MetricCollector()
    await collector.init_backends(None, CONFIG, global_step=5, process_name=f"TrainActor_1abc_r{rank}")
    for step in (5, 6):
        for value in range(rank + 1):
            record_metric("grpo/reward", value + 10 * rank)
            record_metric("grpo/tokens", 100, Reduce.SUM)
            record_metric("grpo/spread", value + 10 * rank, Reduce.STD)
        await collector.flush(step)
    await collector.shutdown()

asyncio.run(main())
"""

EXPECTED = {
    "grpo/reward": (0 + 10 + 11) / 3,
    "grpo/reward/rank_0": 0.0,
    "grpo/reward/rank_1": 10.5,
    "grpo/tokens": 300.0,
    "grpo/tokens/rank_0": 100.0,
    "grpo/tokens/rank_1": 200.0,
    "grpo/spread": (221 / 3 - 49) ** 0.5,
    "grpo/spread/std/rank_1": 0.5,
}


@pytest.mark.feature("F5", "better", "every mode that a backend asks for is in all of them")
@pytest.mark.feature("F8", "yes", "one run, whatever the processes")
@pytest.mark.feature("F11", "better", "one run that has each rank's series; W&B's shared mode is not needed")
@pytest.mark.feature("F16", "better", "each exporter there is; plug-ins by entry point")
def test_global_and_per_rank_values_are_exact_in_each_backend(tmp_path: Path) -> None:
    commands = [
        (
            [sys.executable, "-c", RANK],
            environment(OTEL_ML_EXPERIMENT_ID="forge", RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2),
        )
        for rank in range(2)
    ]

    with processes(commands, tmp_path) as started:
        all_finished(started)

    run = the_run_in(tmp_path / "otel-ml-runs")
    for backend in ("jsonl", "tensorboard", "mlflow"):
        stored = scalars_in(backend, run)
        shown = {name: stored.get(name) for name in EXPECTED}
        assert shown == {name: pytest.approx({5: value, 6: value}, rel=1e-6) for name, value in EXPECTED.items()}, (
            backend
        )


@pytest.mark.feature("F9", "yes", "an actor imports and records; nobody registers it")
def test_the_example_is_one_run_with_the_actors_values_and_the_samples(tmp_path: Path) -> None:
    said = finished([sys.executable, ROOT / "examples" / "migrate" / "forge_actor.py"], environment(), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    shown = otel_ml.read(run)
    assert shown["rl_trainer/loss"] == (list(range(10)), [1 / (1 + step) for step in range(10)])
    assert shown["rl_trainer/total_duration_max_s"][0] == list(range(10))
    assert sum(shown["generator/tokens"][1]) == 1280.0
    tables = [table for table in answer_of("jsonl", run)["tables"] if table[0] == "rollouts"]
    assert [[row[0] for row in table[3]] for table in tables] == [[0.75, 0.0]] * 10
    assert said.count(" → ./otel-ml-runs/") == 1
    assert said.count("No step is set") <= 1  # where the actor ends before the controller has a row
