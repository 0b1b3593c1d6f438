from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from otel_ml.variable import size_bytes
from otel_ml_service import env
from otel_ml_service.config import Limits, ServiceConfig

ENVIRONMENT = Path(__file__).parents[3] / "docs" / "environment.md"


def documented() -> dict[str, str]:
    """Return what the docs say that a variable is where nobody sets it."""
    rows = re.findall(r"^\| `(OTEL_ML_\w+)` \| (.*?) \|", ENVIRONMENT.read_text(), re.MULTILINE)
    return {name: default.replace("`", "") for name, default in rows}


@pytest.mark.parametrize("variable", [one for one in env.VARIABLES if one.unit == "bytes"], ids=lambda one: one.name)
def test_a_size_is_by_default_what_the_docs_say(variable: Any) -> None:
    assert variable.default == size_bytes(documented()[variable.name])


@pytest.mark.parametrize(
    ("variable", "default"),
    [
        (env.LISTEN_HTTP, "127.0.0.1:4318"),
        (env.LISTEN_GRPC, "127.0.0.1:4317"),
        (env.FINDINGS, "on"),
        (env.ALLOWED_LATENESS, "10000"),
        (env.CLOSED_HOURS, "24"),
        (env.SERIES_MAX, "100000"),
        (env.TOP_RANKS, "0"),
        (env.DIR, "./otel-ml-runs"),
        (env.EXPERIMENT_NAME, "default"),
        (env.SELF, "problems"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_setting_is_by_default_what_the_docs_say(variable: Any, default: str) -> None:
    assert documented()[variable.name].split()[0] == default
    assert variable.default == variable.parse(default)


def test_a_run_ends_by_default_after_the_silence_that_the_docs_say_of_serve_and_of_a_jobs_own_service() -> None:
    of_serve, embedded = re.findall(r"\d+", documented()["OTEL_ML_END_SILENCE"])

    assert (env.END_SILENCE.default, env.EMBEDDED_END_SILENCE) == (int(of_serve), int(embedded)) == (300_000, 30_000)


def test_variables_of_the_secret_token_alone_are_hidden() -> None:
    assert [variable.name for variable in env.VARIABLES if variable.secret] == ["OTEL_ML_TOKEN"]


@pytest.mark.parametrize(
    ("variable", "least"),
    [(env.CLOSED_HOURS, 0), (env.TOP_RANKS, 0), (env.ALLOWED_LATENESS, 0), (env.SERIES_MAX, 1), (env.END_SILENCE, 1)],
    ids=lambda one: getattr(one, "name", ""),
)
def test_the_least_number_is_taken_and_what_is_below_is_a_problem(variable: Any, least: int) -> None:
    assert variable.read({variable.name: str(least)}).value == least
    assert variable.read({variable.name: str(least)}).problem is None
    assert variable.read({variable.name: str(least - 1)}).problem == (
        f"{variable.name}: expected a whole number of at least {least}, got '{least - 1}'."
    )


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4318", ("127.0.0.1", 4318)),
        ("gpu-node-1:0", ("gpu-node-1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:4317", ("::1", 4317)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert env.address(text) == address


@pytest.mark.parametrize("text", ["4318", ":4318", "[]:4318", "host:", "host:http", "host:-1", "host:65536"])
def test_what_is_no_address_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"^host:port, such as 127\.0\.0\.1:4318$"):
        env.address(text)


def test_a_service_that_is_told_nothing_has_the_defaults_of_the_variables() -> None:
    config = ServiceConfig.load(environ={})

    assert config.limits == Limits(
        queue=256 * 2**20, open=2**30, retained=256 * 2**20, closed=2**30, closed_hours=24, late=2**30, series=100_000
    )
    assert (config.allowed_lateness_s, config.end_silence_s, config.top_ranks, config.findings) == (10, 300, 0, True)
    assert (config.self_telemetry, config.token, config.tokens, config.token_file) == ("problems", "", (), None)
