"""torchforge's calls in several processes, read back from every backend."""

from __future__ import annotations

import json
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


CONTROLLER = '''
import asyncio, json, os, subprocess, sys
from otel_ml.compat.forge import child_env, get_or_create_metric_logger

PLAN = json.loads(sys.argv[1])

ACTOR = """
import json
import sys
import otel_ml
from otel_ml.compat.forge import Reduce, record_metric

for line in sys.stdin:
    for value in map(float, line.split()):
        record_metric("generator/length", value, Reduce.MEAN)
        record_metric("generator/tokens", value, Reduce.SUM)
    otel_ml.flush(30)  # the values of one flush are not folded with those of the next, however fast this is
    print("done", flush=True)
"""

async def main():
    logger = await get_or_create_metric_logger(process_name="Controller")
    await logger.init_backends.call_one({"tensorboard": {"logging_mode": "global_reduce"}})
    actors = [
        subprocess.Popen(
            [sys.executable, "-c", ACTOR], env={**os.environ, **child_env()},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]
    for step, recorded in PLAN:
        for actor, values in zip(actors, recorded):
            print(*values, file=actor.stdin, flush=True)
        assert [actor.stdout.readline() for actor in actors] == ["done\\n"] * 3
        await logger.flush.call_one(step)
    for actor in actors:
        actor.stdin.close()
        actor.wait()
    await logger.shutdown.call_one()

asyncio.run(main())
'''


def plan(*steps: int, silent: int | None = None) -> list[tuple[int, list[list[float]]]]:
    """Return (step, the values of each of three actors); in step `silent` the second one records nothing."""
    return [
        (step, [[10.0 * step], [] if step == silent else [10.0 * step + 2, 10.0 * step + 3], [10.0 * step + 4] * 3])
        for step in steps
    ]


@pytest.mark.feature("F8", "yes", "one run, whatever the processes")
@pytest.mark.parametrize(
    "steps",
    [
        plan(1, 2),
        plan(0, 1, 2, 3),
        plan(1, 2, 3, 4, silent=2),
        plan(5, 10, 40),
        [(0, [[1.0], [2.0], [3.0]]), (1, [[], [], []]), (2, [[4.0], [5.0], []])],
    ],
    ids=["two", "four", "an actor is silent", "not consecutive", "nobody records"],
)
def test_what_actors_record_is_in_the_step_of_the_next_flush_of_a_controller_that_records_nothing(
    tmp_path: Path, steps: list[tuple[int, list[list[float]]]]
) -> None:
    said = finished([sys.executable, "-c", CONTROLLER, json.dumps(steps)], environment(), tmp_path)

    run = the_run_in(tmp_path / "otel-ml-runs")
    values = {step: [value for of_actor in recorded for value in of_actor] for step, recorded in steps}
    means = {step: pytest.approx(sum(held) / len(held)) for step, held in values.items() if held}
    sums = {step: pytest.approx(sum(held)) for step, held in values.items() if held}
    for backend in ("jsonl", "tensorboard"):
        stored = scalars_in(backend, run)
        assert stored["generator/length"] == means, backend
        assert stored["generator/tokens"] == sums, backend
    assert "otel_ml/flushed" not in scalars_in("tensorboard", run)
    assert "No step is set" not in said
