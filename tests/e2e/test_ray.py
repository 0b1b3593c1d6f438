"""A Ray job whose driver says `otel_ml.instrument_ray()` once, with real Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.jobs import environment, runs_in
from tests.e2e.ray_job import STEPS

pytestmark = pytest.mark.e2e


class Job(NamedTuple):
    runs: Sequence[Path]
    rows: Sequence[Mapping[str, Any]]
    spans: Mapping[str, Mapping[str, Any]]

    def values(self, name: str) -> list[tuple[int, float]]:
        """All stored values of a name, by step."""
        found = [(row["step"], row["values"][name]) for row in self.rows if name in row.get("values", {})]
        return sorted(found)

    def ancestors(self, span: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        while (parent := span.get("parent_id")) is not None:
            span = self.spans[parent]
            yield span


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("r")  # Ray's sockets lie below it: their paths have 107 characters
    env = environment(OTEL_ML_DIR=folder / "runs", OTEL_ML_END_SILENCE=2000, RAY_TMPDIR=folder)
    command = [sys.executable, "-m", "tests.e2e.ray_job", str(folder / "ray")]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = runs_in(folder / "runs")
    rows = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    spans = [json.loads(line) for line in (runs[0] / "spans.jsonl").read_text().splitlines()]
    return Job(runs, rows, {span["span_id"]: span for span in spans})


@pytest.mark.feature("R21", "better", "every task and actor joins one run with one call on the driver")
def test_driver_tasks_and_actors_are_one_run_with_every_value_once(job: Job) -> None:
    assert len(job.runs) == 1
    everything = range(STEPS)
    assert job.values("driver/queued") == [(step, float(step)) for step in everything]
    assert job.values("rollout_worker/reward") == [(step, 10.0 + 2 * step) for step in everything]
    assert job.values("judge/score") == [(step, float(step)) for step in everything]
    assert job.values("store/stored") == [(step, 1.0) for step in everything]
    assert job.values("task/eval/correct") == [(step, float(step)) for step in everything]


def test_actors_of_a_class_are_ranks_of_a_role(job: Job) -> None:
    ranks = {name for row in job.rows for name in row.get("values", {}) if name.startswith("rollout_worker/reward/")}

    assert ranks == {"rollout_worker/reward/rank_0", "rollout_worker/reward/rank_1"}


def test_what_a_killed_actor_recorded_200_ms_before_is_there(job: Job) -> None:
    assert job.values("rollout_worker/killed/last_words") == [(STEPS, 1.0)]


@pytest.mark.feature("N2", "better", "timers of actors nest in the driver's span of the step, across `.remote()`")
@pytest.mark.parametrize("name", ["act", "judge"])
def test_timers_of_actors_nest_in_the_drivers_span(job: Job, name: str) -> None:
    spans = [span for span in job.spans.values() if span["name"] == name]

    assert {next(outer["name"] for outer in job.ancestors(span) if outer["role"] == "driver") for span in spans} == {
        f"{'RolloutWorker.act' if name == 'act' else 'Judge.judge'} ray.remote"
    }
    assert {list(job.ancestors(span))[-1]["name"] for span in spans} == {"iteration"}
