"""A Ray job whose driver says `otel_ml.instrument_ray()` once, with real Ray."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import otel_ml
from tests.e2e.jobs import ROOT, environment, finished, runs_in
from tests.e2e.ray_job import STEPS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]  # Ray starts about ten processes, twice


class Job(NamedTuple):
    runs: Sequence[Path]
    rows: Sequence[Mapping[str, Any]]
    spans: Mapping[str, Mapping[str, Any]]

    def values(self, name: str) -> list[tuple[int, float]]:
        """The values of a name as they stand at last, by step: a rank that joins late amends."""
        rows = [row for row in self.rows if name in row.get("values", {})]
        firsts = [row["step"] for row in rows if not row.get("amendment")]
        assert len(firsts) == len(set(firsts)), f"{name} stands twice at a step, and is not an amendment"
        return sorted({row["step"]: row["values"][name] for row in rows}.items())

    def ancestors(self, span: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        while (parent := span.get("parent_id")) is not None:
            span = self.spans[parent]
            yield span


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Job]:
    """Run the job of the tests, then the example."""
    programs = {"job": ["-m", "tests.e2e.ray_job"], "example": [ROOT / "examples" / "migrate" / "ray_actors.py"]}
    found = {}
    for name, program in programs.items():
        folder = tmp_path_factory.mktemp(name)
        # Ray's sockets lie below this folder: a path has 107 characters at most.
        with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
            env = environment(OTEL_ML_DIR=folder, OTEL_ML_END_SILENCE=2000, RAY_TMPDIR=short)
            finished([sys.executable, *program], env, folder)
        found[name] = stored(folder)
    return found


def stored(folder: Path) -> Job:
    runs = runs_in(folder)
    rows = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    spans = [json.loads(line) for line in (runs[0] / "spans.jsonl").read_text().splitlines()]
    return Job(runs, rows, {span["span_id"]: span for span in spans})


@pytest.fixture(scope="module")
def job(jobs: Mapping[str, Job]) -> Job:
    return jobs["job"]


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


@pytest.mark.feature("N27", "better", "nothing has to be flushed before an actor is torn down")
def test_what_a_killed_actor_had_on_its_disk_is_there(job: Job) -> None:
    assert job.values("rollout_worker/killed/last_words") == [(STEPS, 1.0)]


@pytest.mark.feature("R21", "better", "timers of actors nest in the driver's spans, and no payload carries a context")
@pytest.mark.parametrize("name", ["act", "judge"])
def test_timers_of_actors_nest_in_the_drivers_span(job: Job, name: str) -> None:
    spans = [span for span in job.spans.values() if span["name"] == name]

    assert {next(outer["name"] for outer in job.ancestors(span) if outer["role"] == "driver") for span in spans} == {
        f"{'RolloutWorker.act' if name == 'act' else 'Judge.judge'} ray.remote"
    }
    assert {list(job.ancestors(span))[-1]["name"] for span in spans} == {"iteration"}


def test_the_example_is_one_run_of_all_its_processes(jobs: Mapping[str, Job]) -> None:
    example = jobs["example"]

    assert len(example.runs) == 1
    rewards, losses = example.values("rollout_worker/reward"), example.values("learner/loss")
    assert [step for step, _ in rewards] == list(range(10))
    assert [1 - loss for _, loss in losses] == pytest.approx([reward for _, reward in rewards])


ALONE = """
import glob, os, time
import ray
from tests.e2e.ray_job import is_on_disk
from tests.waiting import eventually

@ray.remote(num_cpus=0)
class TaskRunner:
    def run(self):
        import otel_ml

        run = otel_ml.init("alone", exporters="jsonl")
        otel_ml.log({"loss": 1.0}, step=1)
        while not glob.glob(os.environ["OTEL_ML_DIR"] + "/alone/*/metrics.jsonl"):
            otel_ml.flush(1)
            time.sleep(0.05)  # between two looks
        otel_ml.log({"loss": 0.5, "accuracy": 0.9}, step=2)
        return run.id

ray.init(num_cpus=1, include_dashboard=False)
runner = TaskRunner.remote()
run_id = ray.get(runner.run.remote())
eventually(lambda: is_on_disk("accuracy", run_id))
ray.kill(runner)
"""
"""As verl's: nothing on the driver, a run that its actor begins, and Ray that kills the actor at the end."""


def test_an_actor_that_began_the_run_by_itself_does_not_take_the_service_along(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(
            OTEL_ML_DIR=tmp_path / "runs", OTEL_ML_END_SILENCE=2000, OTEL_ML_FLUSH_INTERVAL=60000, RAY_TMPDIR=short
        )
        finished([sys.executable, "-c", ALONE], env, tmp_path)

    [run] = runs_in(tmp_path / "runs")
    shown = otel_ml.read(run)
    assert (shown["loss"], shown["accuracy"]) == (([1, 2], [1.0, 0.5]), ([2], [0.9]))
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["type"], last["status"]) == ("status", "killed")


RUNS = """
import ray, otel_ml

@ray.remote(num_cpus=0)
class Worker:
    def act(self, reward):
        otel_ml.log({"reward": reward}, step=0)
        otel_ml.flush()

for reward, name in enumerate(["first", "second", "third"]):
    with otel_ml.init("folds", name=name, role="driver"):
        otel_ml.instrument_ray()
        if not reward:
            ray.init(num_cpus=2, include_dashboard=False)
        otel_ml.log({"queued": 1}, step=0)
        worker = Worker.remote()
        ray.get(worker.act.remote(reward))
otel_ml.instrument_ray()  # too early
otel_ml.init("folds", name="last")
ray.shutdown()
"""


def test_actors_of_each_run_of_a_driver_are_in_that_run(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(OTEL_ML_DIR=tmp_path, OTEL_ML_END_SILENCE=2000, OTEL_ML_EXPORTERS="jsonl", RAY_TMPDIR=short)
        errors = finished([sys.executable, "-c", RUNS], env, tmp_path)

    found = {}
    for run in runs_in(tmp_path):
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        values = {name: value for line in lines for name, value in line.get("values", {}).items()}
        found[(run / "state" / "name").read_text().strip()] = values.get("worker/reward")
    assert found == {"first": 0.0, "second": 1.0, "third": 2.0, "last": None}
    assert errors.count("Call instrument_ray() again after init()") == 1
