"""`instrument_ray()` changes nothing that a program notices of its calls; and who is who in odd drivers."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from tests.e2e.jobs import environment, finished, the_run_in
from tests.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]  # Ray starts about ten processes, twice


def run_of(program: str, folder: Path, **variables: str) -> Mapping[str, Any]:
    """Run a driver; return what its run shows."""
    # Ray's sockets lie below this folder: a path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(
            OTEL_ML_DIR=folder, OTEL_ML_END_SILENCE=2000, OTEL_ML_EXPORTERS="jsonl", RAY_TMPDIR=short, **variables
        )
        finished([sys.executable, "-c", program], env, folder)
    return otel_ml.read(the_run_in(folder))


CALLS = """
import ray, otel_ml

@ray.remote(num_cpus=0)
def twice(number):
    otel_ml.log({"given": number}, step=0)
    return 2 * number

@ray.remote(num_cpus=0)
class Source:
    def numbers(self, end, **options):
        otel_ml.log({"asked": 1.0}, step=0)
        yield options
        for number in range(end):
            yield number

    @staticmethod
    def static(number, **options):
        return number, options

    @classmethod
    def of_class(cls, number):
        return number

def every_call():
    assert ray.get(twice.remote(3)) == 6
    source = Source.remote()
    found = source.numbers.options(num_returns="streaming").remote(2, skip=0)
    assert [ray.get(one) for one in found] == [{"skip": 0}, 0, 1]
    assert ray.get(source.static.remote(3, scale=1)) == (3, {"scale": 1})
    assert ray.get(source.of_class.remote(3)) == 3

ray.init(num_cpus=1, include_dashboard=False, runtime_env={"env_vars": {"OTEL_SDK_DISABLED": "true"}})
every_call()  # what Ray remembers of these calls knows nothing of tracing
ray.shutdown()
with otel_ml.init("calls", role="driver"):
    otel_ml.instrument_ray()
    ray.init(num_cpus=1, include_dashboard=False)
    every_call()
    ray.shutdown()
"""


def test_a_program_that_calls_what_ray_does_not_trace_goes_on_as_without_us(tmp_path: Path) -> None:
    shown = run_of(CALLS, tmp_path)

    assert (shown["task/given"], shown["source/asked"]) == (([0], [3.0]), ([0], [1.0]))


ACTORS = """
import ray, otel_ml
from otel_ml.integrations.ray import runtime_env

@ray.remote(num_cpus=0)
class Worker:
    def act(self, reward):
        otel_ml.log({"reward": reward}, step=0, reduce=("sum", "rank"))

with otel_ml.init("actors", role="driver"):
    START
    workers = [Worker.remote() for _ in range(2)]
    ray.get([worker.act.remote(number + 1) for number, worker in enumerate(workers)])
    ray.shutdown()
"""

BY_HAND = ACTORS.replace("START", "ray.init(num_cpus=1, include_dashboard=False, runtime_env=runtime_env())")
BY_HOOK = ACTORS.replace("START", "otel_ml.instrument_ray(); ray.init(num_cpus=1, include_dashboard=False)")


def is_each_a_rank(shown: Mapping[str, Any]) -> bool:
    """Whether the actors were the ranks 0 and 1 of their role: which of them is which, their start decides."""
    found = {name: shown[name][1] for name in shown if "reward" in name}
    both = sorted([found.pop("worker/reward/rank_0", []), found.pop("worker/reward/rank_1", [])])
    return found == {"worker/reward": [3.0]} and both == [[1.0], [2.0]]


def test_an_environment_given_by_hand_is_enough_for_roles_and_ranks(tmp_path: Path) -> None:
    assert is_each_a_rank(run_of(BY_HAND, tmp_path))


def test_a_driver_that_torchrun_has_started_passes_its_rank_to_no_actor(tmp_path: Path) -> None:
    of_torchrun = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}

    assert is_each_a_rank(run_of(BY_HOOK, tmp_path, **of_torchrun))


def test_a_submitted_job_with_a_setup_hook_of_its_own_starts(tmp_path: Path) -> None:
    hook = {"worker_process_setup_hook": "os.getcwd"}
    told = {"env_vars": {"__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "os.getcwd"}}  # as the job's supervisor has it
    config = json.dumps({"runtime_env": {**hook, **told}, "metadata": {}})

    assert is_each_a_rank(run_of(BY_HOOK, tmp_path, RAY_JOB_CONFIG_JSON_ENV_VAR=config))


JOB_CONFIG = """
import os
import ray, otel_ml
from ray.job_config import JobConfig

@ray.remote(num_cpus=0)
def has():
    otel_ml.log({"asked": 1.0}, step=0)
    return os.environ.get("OF_THE_JOB")

with otel_ml.init("job-config", role="driver"):
    otel_ml.instrument_ray()
    config = JobConfig(runtime_env={"env_vars": {"OF_THE_JOB": "1"}})
    ray.init(num_cpus=1, include_dashboard=False, job_config=config)
    assert ray.get(has.remote()) == "1"
    ray.shutdown()
"""


def test_the_environment_of_a_job_config_is_the_jobs_as_without_us(tmp_path: Path) -> None:
    assert run_of(JOB_CONFIG, tmp_path)["task/asked"] == ([0], [1.0])


DISABLED = """
import ray, otel_ml
from otel_ml.integrations import ray_service

ray_service._FIRST_S = 3600.0  # longer than a test may last
otel_ml.instrument_ray(service="actor")
otel_ml.init("disabled")
ray.init(num_cpus=1, include_dashboard=False)
ray.shutdown()
"""


def test_the_end_of_a_run_that_is_disabled_waits_for_no_service(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(OTEL_ML_DIR=tmp_path, OTEL_SDK_DISABLED="true", RAY_TMPDIR=short)
        finished([sys.executable, "-c", DISABLED], env, tmp_path)


LEFT_AT_THE_END = """
import os, sys, time, ray, otel_ml

otel_ml.init("exp", name="left", role="driver")
otel_ml.instrument_ray()
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

@ray.remote
def work(step):
    otel_ml.log({"x": step}, step=step)

@ray.remote(num_cpus=0)
class Actor:
    def act(self, step):
        otel_ml.log({"y": step}, step=step)

    def die(self):
        os.kill(os.getpid(), 9)

ray.get([work.remote(step) for step in range(6)])
actors = [Actor.remote() for _ in range(2)]
for step in range(3):
    ray.get([actor.act.remote(step) for actor in actors])
if "dies" in sys.argv:
    time.sleep(2)  # the service has heard of it
    try:
        ray.get(actors[1].die.remote())
    except ray.exceptions.ActorDiedError:
        time.sleep(3)  # the service looks at the processes of its host once a second
"""


@pytest.mark.parametrize(
    ("how", "status", "killed"),
    [
        ("", "finished", []),
        ("dies", "killed", ["actor/otel_ml/killed"]),
    ],
)
def test_who_ray_ends_with_the_driver_was_not_killed_and_who_died_before_was(
    tmp_path: Path, how: str, status: str, killed: list[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        env = environment(OTEL_ML_DIR=tmp_path, OTEL_ML_EXPORTERS="jsonl", RAY_TMPDIR=short)
        finished([sys.executable, "-c", LEFT_AT_THE_END, how], env, tmp_path)
    folder = the_run_in(tmp_path)

    eventually(lambda: statuses(folder)[-1:] == [status], timeout=60)

    texts = [one["name"].partition("/rank_")[0] for one in lines(folder) if one.get("type") == "text"]
    assert [name for name in texts if "killed" in name] == killed  # which of the two is rank 1 is Ray's choice


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def statuses(folder: Path) -> list[str]:
    return [one["status"] for one in lines(folder) if "status" in one]
