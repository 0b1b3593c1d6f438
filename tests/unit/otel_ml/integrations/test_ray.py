"""What `instrument_ray()` gives Ray; what becomes of it is in `tests/e2e/test_ray.py`."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from ray import cloudpickle

import otel_ml
from otel_ml.integrations import ray as integration
from otel_ml.testing import capture


@pytest.fixture(autouse=True)
def no_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", "")
    monkeypatch.delenv("RAY_RUNTIME_ENV_HOOK")
    monkeypatch.setattr(integration, "_before", None)  # the hook of the test before
    monkeypatch.setattr(integration.ray_tracing, "switch_on", lambda: None)  # Ray's switch has no way back


@pytest.fixture
def run() -> Iterator[None]:
    with capture():
        yield


def others_hook(given: dict[str, object] | None) -> dict[str, object]:
    """Stand for the hook of somebody else."""
    return {**(given or {}), "working_dir": "theirs"}


def test_without_a_run_it_says_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_ML_DIR")

    with pytest.raises(otel_ml.ConfigError, match=r"found no run\. Call otel_ml\.init\(\) first"):
        otel_ml.instrument_ray()


@pytest.mark.usefixtures("run")
def test_ray_asks_us_for_the_environment_of_workers() -> None:
    otel_ml.instrument_ray()
    otel_ml.instrument_ray()

    assert os.environ["RAY_RUNTIME_ENV_HOOK"] == "otel_ml.integrations.ray.runtime_env"


@pytest.mark.usefixtures("run")
def test_a_workers_environment_has_the_run_and_what_the_user_said_wins() -> None:
    given = {"env_vars": {"OTEL_ML_CONSOLE": "auto", "A": "1"}, "pip": ["x"]}

    found = integration.runtime_env(given)

    assert found["pip"] == ["x"]
    assert found["env_vars"]["OTEL_ML_EXPERIMENT_ID"]
    assert found["env_vars"] | given["env_vars"] == found["env_vars"]
    assert "worker_process_setup_hook" not in given


@pytest.mark.usefixtures("run")
def test_a_worker_does_not_inherit_who_the_driver_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "driver")
    monkeypatch.setenv("OTEL_ML_RANK", "3")

    found = integration.runtime_env({"env_vars": {"OTEL_ML_RANK": "7"}})["env_vars"]

    assert (found["OTEL_SERVICE_NAME"], found["OTEL_ML_RANK"]) == ("", "7")


@pytest.mark.usefixtures("run")
def test_the_hook_of_somebody_else_is_asked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", f"{__name__}.others_hook")
    monkeypatch.setattr("ray._common.utils.load_class", lambda _: others_hook)
    otel_ml.instrument_ray()

    found = integration.runtime_env({"env_vars": {"A": "1"}})

    assert found["working_dir"] == "theirs"
    assert found["env_vars"]["A"] == "1"


@pytest.mark.usefixtures("run")
def test_the_users_own_setup_hook_runs_after_ours_and_both_travel_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(integration, "join_worker", lambda **_: ran.append("ours"))
    hook = integration.runtime_env({"worker_process_setup_hook": lambda: ran.append("theirs")})

    hook["worker_process_setup_hook"]()

    assert ran == ["ours", "theirs"]
    assert b"otel_ml.integrations.ray\x94" not in cloudpickle.dumps(integration._setup_hook(None))[:60]


def test_without_a_run_the_environment_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_ML_DIR")

    assert integration.runtime_env({"pip": ["x"]}) == {"pip": ["x"]}


@pytest.mark.usefixtures("run")
def test_an_actor_cannot_host_the_service_of_a_run_that_has_begun() -> None:
    with pytest.raises(otel_ml.ConfigError, match=r"came after otel_ml\.init\(\).* Call it before\."):
        otel_ml.instrument_ray(service="actor")


def test_what_is_wrong_with_a_hosted_service_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")

    with pytest.raises(otel_ml.ConfigError) as error:
        otel_ml.instrument_ray(service="head")  # type: ignore[arg-type]

    assert "expected 'actor', or nothing, got 'head'" in str(error.value)
    assert "OTEL_EXPORTER_OTLP_ENDPOINT names a service already. Unset it" in str(error.value)


@pytest.mark.usefixtures("run")
def test_workers_are_told_that_an_actor_hosts_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, object]] = []
    monkeypatch.setattr(integration, "join_worker", lambda **how: told.append(how))

    with monkeypatch.context() as until_the_run_ends:  # which then puts back what it has found itself
        until_the_run_ends.setattr(integration.RUNTIME, "make_link", integration.RUNTIME.make_link)
        integration.ray_service.use_actor()
        otel_ml.instrument_ray(service="actor")
        integration.runtime_env()["worker_process_setup_hook"]()

    assert told == [{"is_hosted": True}]
