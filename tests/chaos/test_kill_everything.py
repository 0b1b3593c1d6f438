"""Kill what can be killed, at random moments, and count: nothing lost, nothing twice."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pytest

import otel_ml
from tests.e2e.jobs import all_finished, begun_services_of, environment, processes, reach, the_run_in, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

RANKS, STEPS = 3, 1500


def job(experiment: str) -> list[tuple[list[object], dict[str, str]]]:
    """Return the commands of a job of `RANKS` processes that trains for about 30 seconds."""
    command = [sys.executable, "-m", "tests.e2e.loop", STEPS, 0.02]
    return [
        (command, environment(OTEL_ML_EXPERIMENT_ID=experiment, RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=RANKS))
        for rank in range(RANKS)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_a_service_killed_at_random_moments_loses_nothing_and_doubles_nothing(seed: int, tmp_path: Path) -> None:
    moments = sorted(random.Random(seed).sample(range(20, STEPS - 100), k=6))
    experiment = f"chaos-{seed}"

    with processes(job(experiment), tmp_path) as ranks:
        for moment in moments:
            reach(ranks[0], moment)
            [service] = until(lambda: begun_services_of(OTEL_ML_EXPERIMENT_ID=experiment))
            os.kill(service, signal.SIGKILL)
        all_finished(ranks)

    run = the_run_in(tmp_path / "otel-ml-runs")
    assert otel_ml.read(run)["tokens"] == (list(range(STEPS)), [float(RANKS)] * STEPS)


def test_a_killed_rank_does_not_stop_the_others_and_no_step_is_lost(tmp_path: Path) -> None:
    with processes(job("chaos-rank"), tmp_path) as ranks:
        reach(ranks[2], STEPS // 2)
        ranks[2].kill()
        all_finished(ranks[:2])

    steps, values = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["tokens"]
    assert steps == list(range(STEPS))
    assert set(values) == {2.0, 3.0}
    assert values[0] == 3.0
    assert values[-1] == 2.0
