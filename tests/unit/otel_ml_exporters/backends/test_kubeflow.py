"""What `kubectl get trainjob` shows of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.backends.kubeflow import KubeflowExporter
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.records import Params
from tests.contract.stream import AT, run_info, step
from tests.fakes.kubeflow_trainer import StatusServer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusServer]:
    server = StatusServer(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


def started() -> KubeflowExporter:
    exporter = KubeflowExporter()
    exporter.start(run_info(Path("unused"), "run"))
    return exporter


def shown(server: StatusServer) -> dict[str, str]:
    return {metric["name"]: metric["value"] for metric in server.status["metrics"]}


def test_a_train_job_shows_how_far_the_run_is_and_the_newest_values(server: StatusServer) -> None:
    exporter = started()
    exporter.export([Params(1, AT, {"trainer": {"max_steps": 8}})])
    exporter.export([step(2, 0, {"loss": 0.5, "otel_ml/lag": 1.0}), step(3, 1, {"loss": 0.25, "accuracy": 0.75})])

    assert server.taken == 1
    assert server.status["progressPercentage"] == 25
    assert server.status["estimatedRemainingSeconds"] == 6
    assert shown(server) == {"loss": "0.25", "accuracy": "0.75"}
    assert server.status["lastUpdatedTime"].startswith("2023-11-14T22:13:")


@pytest.mark.parametrize(
    ("params", "values"),
    [
        ({"max_steps": math.inf}, {}),
        ({"max_steps": math.nan}, {}),
        ({"max_steps": 10**400}, {}),
        ({}, {"progress/remaining_steps": math.inf}),
        ({}, {"progress/remaining_steps": math.nan}),
    ],
)
def test_a_run_that_says_that_it_never_ends_has_no_progress(
    server: StatusServer, params: dict[str, float], values: dict[str, float]
) -> None:
    exporter = started()
    exporter.export([Params(1, AT, params), *(step(seq, seq, {"loss": 0.5, **values}) for seq in range(2, 5))])

    assert "progressPercentage" not in server.status
    assert "estimatedRemainingSeconds" not in server.status
    assert shown(server)["loss"] == "0.5"


def test_steps_below_zero_are_the_beginning(server: StatusServer) -> None:
    exporter = started()
    exporter.export([Params(1, AT, {"max_steps": 100}), step(2, -9, {"loss": 0.5}), step(3, -8, {"loss": 0.5})])

    assert server.status["progressPercentage"] == 0


def test_without_an_end_in_sight_there_is_no_progress_and_a_correction_is_no_news(server: StatusServer) -> None:
    exporter = started()
    exporter.export([step(1, 5, {"loss": math.nan})])
    exporter.export([step(2, 4, {"loss": 0.5}, amendment=True)])

    assert "progressPercentage" not in server.status
    assert shown(server) == {"loss": "nan"}


def test_a_token_that_was_exchanged_is_read_again(server: StatusServer) -> None:
    exporter = started()
    exporter.export([step(1, 0, {"loss": 0.5})])
    server.exchange_token()
    exporter.export([step(2, 1, {"loss": 0.25})])

    assert shown(server) == {"loss": "0.25"}


def test_what_may_pass_comes_again_and_what_does_not_is_said_and_loses_nothing(server: StatusServer) -> None:
    exporter = started()
    server.answers = [503, 404]

    with pytest.raises(RetryableExportError, match="answered 503"):
        exporter.export([step(1, 0, {"loss": 0.5})])
    exporter.export([step(1, 0, {"loss": 0.5})])

    assert "answered 404" in (exporter.notice or "")
    exporter.export([step(2, 1, {"loss": 0.25})])
    assert shown(server) == {"loss": "0.25"}


def test_more_metrics_and_longer_names_than_a_status_takes_are_left_out_and_said(server: StatusServer) -> None:
    exporter = started()
    exporter.export([step(1, 0, {"loss": 0.5, "n" * 65: 1.0} | {f"layer/{number}": 1.0 for number in range(400)})])

    assert len(server.status["metrics"]) == 256
    assert shown(server)["loss"] == "0.5"
    assert "64 characters" in (exporter.notice or "")


def test_outside_of_a_train_job_it_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="KUBEFLOW_TRAINER_SERVER_URL") as raised:
        KubeflowExporter()

    assert "KUBEFLOW_TRAINER_SERVER_TOKEN" in str(raised.value)
