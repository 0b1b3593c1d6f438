"""Several numbers under one name are one value or none, as in the original, and never only the last of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from otel_ml._internal.error_reporting import reporter
from otel_ml.compat import mlflow
from otel_ml.compat.itwinai import ConsoleLogger
from otel_ml.compat.megatron import LoggerConfig, TrainingLog
from otel_ml.compat.tensorboard import SummaryWriter
from otel_ml.compat.verl import RLInsightLogger, Tracking
from otel_ml.testing import Capture, capture

Log = Callable[[Mapping[str, Any]], None]

SEVERAL = [[1.0, 3.0], (1.0, 3.0), [np.float32(1.0), np.float32(3.0)], np.array([1.0, 3.0]), torch.tensor([1.0, 3.0])]


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run


def tensorboard(row: Mapping[str, Any]) -> None:
    with SummaryWriter("runs/digits") as writer:
        writer.add_scalars("a", row, 3)


def mlflow_each(row: Mapping[str, Any]) -> None:
    with mlflow.start_run():
        for name, value in row.items():
            mlflow.log_metric(f"a/{name}", value, step=3)


def mlflow_row(row: Mapping[str, Any]) -> None:
    with mlflow.start_run():
        mlflow.log_metrics({f"a/{name}": value for name, value in row.items()}, step=3)


def mlflow_client(row: Mapping[str, Any]) -> None:
    with mlflow.start_run() as run:
        for name, value in row.items():
            mlflow.MlflowClient().log_metric(run.info.run_id, f"a/{name}", value, step=3)


REFUSE = [tensorboard, mlflow_each, mlflow_row, mlflow_client]


@pytest.mark.parametrize("several", SEVERAL, ids=repr)
@pytest.mark.parametrize("log", REFUSE)
def test_where_the_original_refuses_it_nothing_of_it_is_recorded_and_it_is_said(
    captured: Capture, log: Log, several: Any
) -> None:
    log({"several": several, "loss": 0.5})

    assert [(point.name, point.step, point.value) for point in captured.points] == [("a/loss", 3, 0.5)]
    assert reporter.dropped["bad_value"] == 1
    [said] = captured.notices
    assert "'a/several' at test_several_numbers.py:" in said
    assert "expected one number" in said


@pytest.mark.parametrize("one", ["2.5", np.array([[2.5]]), torch.tensor([2.5]), np.float32(2.5)], ids=repr)
@pytest.mark.parametrize("log", REFUSE)
def test_what_the_original_takes_for_one_number_is_one(captured: Capture, log: Log, one: Any) -> None:
    log({"one": one})

    assert [(point.name, point.value) for point in captured.points] == [("a/one", 2.5)]
    assert captured.notices == []


def verl(row: Mapping[str, Any]) -> None:
    with Tracking("p", "e", default_backend=["wandb"]) as tracking:
        tracking.log(row, step=3)


def rl_insight(row: Mapping[str, Any]) -> None:
    with Tracking("p", "e", default_backend=["wandb"]):
        RLInsightLogger.log(row, 3)


def itwinai(row: Mapping[str, Any]) -> None:
    with ConsoleLogger().start_logging() as logger:
        for name, value in row.items():
            logger.log(value, name, kind="metric", step=3)


def lightning(row: Mapping[str, Any]) -> None:
    from otel_ml.integrations.lightning import OtelMLLogger

    OtelMLLogger(log_model=False).log_metrics(row, step=3)


def megatron(row: Mapping[str, Any]) -> None:
    lines: list[str] = []
    TrainingLog(LoggerConfig(log_interval=1), write=lines.append).log(3, {**row, "list": [1.0, 3.0]})
    shown = dict(part.partition(": ")[::2] for part in lines[0].split(" | "))
    assert [shown[name] for name in ("several", "loss", "list")] == ["2.000000E+00", "5.000000E-01", "2.000000E+00"]


@pytest.mark.parametrize("several", [*SEVERAL, np.array([[1.0, 2.0], [2.0, 3.0]])], ids=repr)
@pytest.mark.parametrize("log", [verl, rl_insight, itwinai, lightning, megatron])
def test_elsewhere_it_is_their_mean(captured: Capture, log: Log, several: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")
    log({"several": several, "loss": 0.5})

    found = {point.name: point.value for point in captured.points}
    assert (found["several"], found["loss"]) == (2.0, 0.5)
    assert reporter.dropped["bad_value"] == 0


def test_the_elements_of_a_metric_with_a_reduction_are_a_record_each(captured: Capture) -> None:
    with ConsoleLogger().start_logging() as logger:
        logger.log([1.0, 3.0], "tokens", kind="metric", step=3, reduce="sum")

    assert [(point.name, point.value, point.count) for point in captured.points] == [("tokens", 4.0, 2)]


@pytest.mark.parametrize("log", [rl_insight, itwinai, lightning])
def test_a_data_frame_is_no_number_and_none_of_its_columns_stands_for_it(
    captured: Capture, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RLInsightLogger.ENABLE_ENV, "1")
    log({"several": pd.DataFrame({"a": [1.0, 2.0], "b": [10.0, 20.0]}), "loss": 0.5})

    assert {point.name: point.value for point in captured.points} == {"loss": 0.5}
    assert any("'several'" in notice for notice in captured.notices)


def test_a_data_frame_that_verl_logs_is_a_table_of_its_step(captured: Capture) -> None:
    verl({"several": pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "loss": 0.5})

    [table] = [event for event in captured.events if event.kind == "ml.table"]
    assert (table.name, table.step, table.body) == (
        "several",
        3,
        {"columns": ["a", "b"], "rows": [[1, "x"], [2, "y"]]},
    )
    assert captured.notices == []
