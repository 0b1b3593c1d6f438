from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml.config import Config
from otel_ml.exceptions import ConfigError


def test_argument_wins_over_environment_and_environment_over_default() -> None:
    environ = {"OTEL_ML_EXPERIMENT_NAME": "from-environment", "OTEL_ML_EXPORTERS": "wandb"}

    assert Config.from_env({}).experiment == "default"
    assert Config.from_env(environ).experiment == "from-environment"
    assert Config.from_env(environ, experiment="from-argument").experiment == "from-argument"
    assert Config.from_env(environ).exporters == ("wandb",)
    assert Config.from_env(environ, exporters="tensorboard, jsonl").exporters == ("tensorboard", "jsonl")


def test_empty_is_unset() -> None:
    assert Config.from_env({"OTEL_ML_MODE": " ", "OTEL_ML_FLUSH_INTERVAL": ""}) == Config.from_env({})


def test_wrong_values_of_the_environment_are_all_named_and_their_defaults_used() -> None:
    config = Config.from_env({"OTEL_ML_MODE": "autoo", "OTEL_ML_RANK": "x", "OTEL_ML_FLUSH_INTERVAL": "1s"})

    assert (config.mode, config.rank, config.flush_interval) == ("auto", None, 1.0)
    assert [problem.split(":")[0] for problem in config.problems] == [
        "OTEL_ML_RANK",
        "OTEL_ML_MODE",
        "OTEL_ML_FLUSH_INTERVAL",
    ]


@pytest.mark.parametrize("label", ["experiment", "name", "id", "role"])
def test_a_name_that_no_variable_can_hold_is_a_wrong_argument(label: str) -> None:
    with pytest.raises(ConfigError, match=rf"init\({label}=\): expected text without NUL characters, got 'a\\x00b'"):
        Config.from_env({}, **{label: "a\0b"})


def test_wrong_arguments_are_all_named_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        Config.from_env({}, rank=-1, world_size=0, experiment=3, topology=5, exporters=7)  # type: ignore[arg-type]

    assert len(error.value.problems) == 5


@pytest.mark.parametrize("rank", [True, 1.5, "1"])
def test_a_rank_is_a_whole_number(rank: object) -> None:
    with pytest.raises(ConfigError, match="rank"):
        Config.from_env({}, rank=rank)  # type: ignore[arg-type]


def test_a_rank_beyond_the_world_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="below the world size"):
        Config.from_env({}, rank=4, world_size=4)


def test_a_rank_of_another_role_is_taken_where_the_environment_has_the_size_of_its_parents() -> None:
    config = Config.from_env({"OTEL_ML_RANK": "0", "OTEL_ML_WORLD_SIZE": "1"}, role="generator", rank=3)

    assert (config.rank, config.world_size, config.problems) == (3, 1, ())


def test_a_prefix_other_than_none_at_all_is_refused_for_it_would_add_nothing() -> None:
    assert Config.from_env({}, prefix="").prefix == ""
    with pytest.raises(ConfigError, match=r"prefix='actor'.*expected \"\" \(names carry no role\) or None"):
        Config.from_env({}, prefix="actor")


def test_remote_mode_without_an_endpoint_is_said_and_recorded_on_this_host() -> None:
    config = Config.from_env({"OTEL_ML_MODE": "remote"})

    assert not config.is_remote
    assert "Set OTEL_EXPORTER_OTLP_ENDPOINT" in config.problems[0]


@pytest.mark.parametrize("value", ["1", "yes", "on", "TRUE!", "0", "no"])
def test_a_boolean_that_is_neither_true_nor_false_is_false_and_said(value: str) -> None:
    config = Config.from_env({"OTEL_SDK_DISABLED": value, "OTEL_EXPORTER_OTLP_INSECURE": value})

    assert (config.disabled, config.endpoint.insecure) == (False, False)
    assert [problem.split(":")[0] for problem in config.problems] == [
        "OTEL_EXPORTER_OTLP_INSECURE",
        "OTEL_SDK_DISABLED",
    ]


@pytest.mark.parametrize("value", ["a,b=c", "=x", "a=b,=", "a=%ff", "a=b,c"])
def test_resource_attributes_with_any_error_are_discarded_whole(value: str) -> None:
    config = Config.from_env({"OTEL_RESOURCE_ATTRIBUTES": f"team=rl,service.name=actor,{value}"})

    assert (config.resource_attributes, config.role) == ({}, "trainer")
    assert len(config.problems) == 1


def test_resource_attributes_are_percent_decoded() -> None:
    config = Config.from_env({"OTEL_RESOURCE_ATTRIBUTES": "a=b%2Cc%3Dd, e = f , service.name=x%20y"})

    assert (config.resource_attributes, config.role) == ({"a": "b,c=d", "e": "f"}, "x y")


@pytest.mark.parametrize(
    "url",
    [
        "grpc://host:4317",
        "http://host:port",
        "http://[::1",
        "http://",
        "http://a b",
        "host:0",
        "http://ho\tst",
        "http://h\u00f4st",
    ],
)
def test_an_endpoint_that_is_none_is_said_and_not_used(url: str) -> None:
    config = Config.from_env({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": url})

    assert not config.is_remote
    assert [problem.split(":")[0] for problem in config.problems] == [
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ]


@pytest.mark.parametrize("header", ["content-length=3", "Host=x", "a%0d%0ab=c", "a%20b=c", "transfer-encoding=chunked"])
def test_headers_that_would_break_requests_are_said_and_not_sent(header: str) -> None:
    config = Config.from_env({"OTEL_EXPORTER_OTLP_HEADERS": f"x-team=rl,{header}"})

    assert config.endpoint.headers == {"x-team": "rl"}
    assert len(config.problems) == 1


def test_an_endpoint_makes_auto_remote_and_is_named_with_its_variable() -> None:
    config = Config.from_env({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://gateway:4318/"})

    assert config.is_remote
    assert (config.endpoint.url, config.endpoint.source) == ("http://gateway:4318", "OTEL_EXPORTER_OTLP_ENDPOINT")


def test_embedded_stays_embedded_although_an_endpoint_is_set() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://gateway:4318", "OTEL_ML_MODE": "embedded"}

    assert not Config.from_env(environ).is_remote


def test_headers_are_decoded_and_the_token_added() -> None:
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "X-Team=a%20b", "OTEL_ML_TOKEN": "t0k"}

    endpoint = Config.from_env(environ).endpoint

    assert endpoint.headers == {"x-team": "a b", "authorization": "Bearer t0k"}
    assert "t0k" not in repr(endpoint)


def test_the_role_comes_from_opentelemetrys_variables() -> None:
    attributes = {"OTEL_RESOURCE_ATTRIBUTES": "service.name=generator,team=rl"}

    assert Config.from_env({}).role == "trainer"
    assert Config.from_env(attributes).role == "generator"
    assert Config.from_env(attributes).resource_attributes == {"team": "rl"}
    assert Config.from_env({**attributes, "OTEL_SERVICE_NAME": "evaluator"}).role == "evaluator"


def test_topology_in_all_its_forms() -> None:
    class Mesh:
        mesh_dim_names = ("dp", "tp")

        def size(self, dim: int) -> int:
            return (2, 4)[dim]

        def get_coordinate(self) -> list[int]:
            return [1, 3]

    assert Config.from_env({}, topology={"dp": (1, 2), "tp": 3}).topology == {"dp": (1, 2), "tp": (3, None)}
    assert Config.from_env({}, topology=Mesh()).topology == {"dp": (1, 2), "tp": (3, 4)}


def test_the_folder_is_absolute() -> None:
    assert Config.from_env({}).dir == Path.cwd() / "otel-ml-runs"


def test_where_the_working_directory_was_removed_runs_are_below_the_home_folder_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(gone)
    gone.rmdir()

    config = Config.from_env({})

    assert config.dir == tmp_path / "otel-ml-runs"
    assert any("the working directory was removed" in problem for problem in config.problems)


def test_an_id_that_is_not_utf_8_is_the_same_one_to_all_who_see_it() -> None:
    config = Config.from_env(environ={"OTEL_ML_EXPERIMENT_ID": "id-\udcff", "OTEL_ML_RUN_NAME": "name-\udcfe"})

    assert (config.id, config.name) == ("id-?", "name-?")
