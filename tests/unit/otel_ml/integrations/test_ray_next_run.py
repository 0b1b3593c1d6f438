"""Which run workers join when the driver of a Ray job begins another; in a real cluster it is in `tests/e2e`."""

from __future__ import annotations

import os

import pytest
from ray.experimental import internal_kv

from otel_ml.integrations import ray_next_run

FIRST = {"OTEL_ML_EXPERIMENT_ID": "a", "OTEL_ML_RUN_NAME": "first", "OTEL_ML_MODE": "embedded"}
SECOND = {"OTEL_ML_EXPERIMENT_ID": "b", "OTEL_ML_MODE": "embedded", "OTEL_ML_EXPORTERS": "jsonl"}
THIRD = {"OTEL_ML_EXPERIMENT_ID": "c"}
NAMES = sorted({*FIRST, *SECOND, *THIRD})


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[bytes, bytes], bytes]:
    """Ray's store, where there is no cluster; the process is neither driver nor worker of a test before."""
    store: dict[tuple[bytes, bytes], bytes] = {}

    def put(name: bytes, value: bytes, *, namespace: bytes, overwrite: bool) -> bool:
        assert overwrite
        store[namespace, name] = value
        return False

    def get(name: bytes, *, namespace: bytes) -> bytes | None:
        return store.get((namespace, name))

    monkeypatch.setattr(internal_kv, "_internal_kv_put", put)  # Ray's own: there is no cluster
    monkeypatch.setattr(internal_kv, "_internal_kv_get", get)  # the same
    monkeypatch.setattr(ray_next_run, "_given_to_workers", {})  # of the test before
    monkeypatch.setattr(ray_next_run, "_followed", {})  # the same
    return store


def be_worker(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # what the worker changes is put back at the end
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def here() -> dict[str, str]:
    return {name: os.environ[name] for name in NAMES if name in os.environ}


def test_a_worker_that_comes_after_another_run_has_begun_joins_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_next_run.remember(FIRST)
    ray_next_run.announce("job-1", SECOND)
    be_worker(monkeypatch, **FIRST)

    ray_next_run.follow("job-1")

    assert here() == SECOND


def test_a_process_that_ray_uses_again_follows_the_run_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_next_run.remember(FIRST)
    ray_next_run.announce("job-1", SECOND)
    be_worker(monkeypatch, **FIRST)
    ray_next_run.follow("job-1")
    ray_next_run.announce("job-1", THIRD)

    ray_next_run.follow("job-1")

    assert here() == THIRD


def test_what_the_users_own_variables_say_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_next_run.remember(FIRST)
    ray_next_run.announce("job-1", SECOND)
    be_worker(monkeypatch, **{**FIRST, "OTEL_ML_RUN_NAME": "mine", "OTEL_ML_EXPORTERS": "wandb"})

    ray_next_run.follow("job-1")

    assert here() == {**SECOND, "OTEL_ML_RUN_NAME": "mine", "OTEL_ML_EXPORTERS": "wandb"}


@pytest.mark.parametrize("own", [{"OTEL_ML_EXPERIMENT_ID": "own"}, {}], ids=["a run of its own", "no run"])
def test_a_worker_that_is_not_in_the_drivers_run_follows_nobody(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str]
) -> None:
    ray_next_run.remember(FIRST)
    ray_next_run.announce("job-1", SECOND)
    be_worker(monkeypatch, **own, OTEL_ML_MODE="embedded")

    ray_next_run.follow("job-1")

    assert here() == {**own, "OTEL_ML_MODE": "embedded"}


def test_a_job_is_told_of_its_own_runs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_next_run.remember(FIRST)
    ray_next_run.announce("job-2", SECOND)
    be_worker(monkeypatch, **FIRST)

    ray_next_run.follow("job-1")

    assert here() == FIRST


def test_a_driver_whose_workers_were_given_no_run_announces_none(kept: dict[tuple[bytes, bytes], bytes]) -> None:
    ray_next_run.announce("job-1", SECOND)

    assert kept == {}


def test_the_newest_ray_init_is_what_workers_have(
    monkeypatch: pytest.MonkeyPatch, kept: dict[tuple[bytes, bytes], bytes]
) -> None:
    ray_next_run.remember(FIRST)
    ray_next_run.remember(SECOND)
    ray_next_run.announce("job-1", THIRD)
    be_worker(monkeypatch, **FIRST)
    ray_next_run.follow("job-1")

    assert list(kept) == [(b"otel_ml", b"job-1/run")]
    assert here() == FIRST
