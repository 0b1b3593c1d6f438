"""Who a worker process of Ray is, where Ray answers late or otherwise; in a real cluster it is in `tests/e2e`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
import ray
from ray.experimental import internal_kv
from ray.util.tracing import tracing_helper

from otel_ml.integrations import ray_place
from otel_ml.integrations.ray import join_worker
from otel_ml.testing import capture


class Store:
    """Ray's key-value store, whose first answers may be failures."""

    def __init__(self, failures: int = 0) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.failures = failures

    def get(self, name: bytes, **_: object) -> bytes | None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the head node does not answer")
        return self.kept.get(name)

    def list(self, prefix: bytes, **_: object) -> list[bytes]:
        return [name for name in self.kept if name.startswith(prefix)]

    def put(self, name: bytes, value: bytes, *, overwrite: bool, **_: object) -> bool:
        is_there = name in self.kept
        if overwrite or not is_there:
            self.kept[name] = value
        return is_there


def be_in_an_actor(monkeypatch: pytest.MonkeyPatch, store: Store, **env_vars: str) -> None:
    """Have Ray say that this process is an actor of the class `Learner`; there is no cluster."""
    for name in ("OTEL_SERVICE_NAME", "OTEL_ML_RANK", "OTEL_ML_WORLD_SIZE", "RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, env_vars.get(name, ""))
        if name not in env_vars:
            monkeypatch.delenv(name)
    context = SimpleNamespace(
        get_actor_id=lambda: "an-actor",
        get_worker_id=lambda: "a-worker",
        get_job_id=lambda: "a-job",
        get_task_function_name=lambda: "train.Learner.step",
        runtime_env={"env_vars": env_vars},
    )
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    for call in ("get", "list", "put"):
        monkeypatch.setattr(internal_kv, f"_internal_kv_{call}", getattr(store, call))  # Ray's own


def place_here() -> Mapping[str, str | None]:
    names = ("OTEL_SERVICE_NAME", "OTEL_ML_RANK", "OTEL_ML_WORLD_SIZE")
    return {name: os.environ[name] for name in names if name in os.environ}


@pytest.mark.parametrize("failures", [1, 2], ids=["which run it is", "which rank is free"])
def test_a_store_that_does_not_answer_at_once_is_asked_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    be_in_an_actor(monkeypatch, Store(failures))
    place = ray_place._Place()

    for _ in range(failures):
        with pytest.raises(ConnectionError):
            place.take()
        assert place_here() == {}
    place.take()

    assert place_here() == {"OTEL_SERVICE_NAME": "learner", "OTEL_ML_RANK": "0"}


def test_a_rank_that_a_framework_gives_its_actors_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    be_in_an_actor(monkeypatch, Store(), RANK="3", WORLD_SIZE="4")

    ray_place._Place().take()

    assert place_here() == {"OTEL_SERVICE_NAME": "learner"}


def test_a_rank_that_an_actor_inherits_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    be_in_an_actor(monkeypatch, Store())
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")

    ray_place._Place().take()

    assert place_here() == {"OTEL_SERVICE_NAME": "learner", "OTEL_ML_RANK": "0", "OTEL_ML_WORLD_SIZE": "1"}


def test_a_worker_whose_ray_is_another_one_runs_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tracing_helper, "_enable_tracing")  # as a Ray that has renamed it

    with capture() as run:
        join_worker()

    assert [message.partition(":")[0] for message in run.notices] == ["This Ray worker has no role and rank of its own"]


class Process:
    """A worker process of Ray, as Ray shows it: what it does is said anew with each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        be_in_an_actor(monkeypatch, Store())
        self.actor: str | None = None
        self.function = "train.step"
        self.place = ray_place._Place()
        context = SimpleNamespace(
            get_actor_id=lambda: self.actor,
            get_worker_id=lambda: "a-worker",
            get_job_id=lambda: "a-job",
            get_task_function_name=lambda: self.function,
            runtime_env={},
        )
        monkeypatch.setattr(ray, "get_runtime_context", lambda: context)

    def call(self, actor: str | None = None, function: str = "train.step", told: str = "") -> Mapping[str, str | None]:
        self.actor, self.function = actor, function
        self.place.take(told)
        return place_here()


TASK = {"OTEL_SERVICE_NAME": "task", "OTEL_ML_RANK": "0"}


def test_a_process_is_what_it_was_until_ray_makes_it_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    tasks = [process.call() for _ in range(2)]
    with capture():
        process.call()
        goes_on = ray_place.RUNTIME.is_active
        actor = process.call("an-actor", "train.RolloutWorker.__init__")
        has_left = not ray_place.RUNTIME.is_active
    again = process.call("an-actor", "train.RolloutWorker.sample")

    assert tasks == [TASK] * 2
    assert (goes_on, has_left) == (True, True)
    assert actor == again == {"OTEL_SERVICE_NAME": "rollout_worker", "OTEL_ML_RANK": "0"}


@pytest.mark.parametrize(("actor", "leaves"), [(None, True), ("an-actor", False)])
def test_a_worker_for_tasks_may_work_for_another_trial_and_an_actor_stays_in_that_of_its_maker(
    monkeypatch: pytest.MonkeyPatch, actor: str | None, leaves: bool
) -> None:
    process = Process(monkeypatch)
    process.call(actor, "train.Learner.step", told="")
    with capture():
        process.call(actor, "train.Learner.step", told="")
        stays = ray_place.RUNTIME.is_active
        process.call(actor, "train.Learner.step", told='["another driver", {}]')
        has_left = not ray_place.RUNTIME.is_active

    assert (stays, has_left) == (True, leaves)
    assert process.place.told == ('["another driver", {}]' if leaves else "")


def test_each_actor_of_a_role_has_the_first_rank_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    found = []
    for number in (0, 1, 2):
        be_in_an_actor(monkeypatch, store)
        context = ray.get_runtime_context()
        context.get_actor_id = lambda number=number: f"actor-{number}"
        ray_place._Place().take()
        found.append(place_here()["OTEL_ML_RANK"])
    ray_place._Place()._become(ray.get_runtime_context(), "actor-1", "", "learner")

    assert found == ["0", "1", "2"]
    assert ray_place._claimed_rank("a-job", "learner", "actor-1") == 1
    assert ray_place._claimed_rank("another-job", "learner", "actor-1") == 0


def test_the_end_of_ray_trains_worker_ends_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(monkeypatch)
    with capture():
        process.call("an-actor", "Learner.shutdown")
        of_another = ray_place.RUNTIME.is_active
        process.call("an-actor", "RayTrainWorker.shutdown")

        assert (of_another, ray_place.RUNTIME.is_active) == (True, False)
