"""What a script for MLflow says of its runs later, or wrongly: names, endings, runs that have ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml.compat import mlflow
from otel_ml.testing import Capture, capture


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        while mlflow.active_run() is not None:
            mlflow.end_run()


def test_a_run_may_be_called_by_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "none")
    trial: Any = 5
    with mlflow.start_run(run_name=trial) as run:
        assert run.info.run_name == "5"


def test_a_tag_names_and_describes_a_run_that_has_begun(captured: Capture) -> None:
    run = mlflow.start_run(run_name="first")
    mlflow.set_tags({"mlflow.runName": "second", "mlflow.note.content": "with warmup", "team": "a"})

    assert run.info.run_name == "second"
    assert RUNTIME.current is not None
    assert (RUNTIME.current.config.name, RUNTIME.current.config.notes) == ("second", "with warmup")
    with mlflow.start_run(run_name="part", nested=True) as part:
        mlflow.set_tag("mlflow.runName", "other")
        assert part.info.run_name == "other"
    assert RUNTIME.current.config.name == "second"


@pytest.mark.parametrize("status", ["BAD", "", None])
def test_an_ending_that_is_none_is_said_and_the_run_has_finished(captured: Capture, status: Any) -> None:
    run = mlflow.start_run()
    mlflow.end_run(status)

    assert run.info.status == "FINISHED"
    [said] = [notice for notice in captured.notices if "end_run(" in notice]
    assert "Exception: Could not get run status" in said


def test_a_metric_without_a_name_is_not_among_those_of_the_run(captured: Capture) -> None:
    run = mlflow.start_run()
    for name in ("", None, 5):
        wrong: Any = name
        mlflow.log_metric(wrong, 1.0)
        mlflow.log_metrics({wrong: 1.0})
    mlflow.log_metric("loss", 1.0)

    assert run.data.metrics == {"loss": 1.0}


def test_what_is_for_a_run_that_has_ended_is_said_and_in_no_other_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    with mlflow.start_run() as first:
        pass
    with mlflow.start_run() as second:
        mlflow.log_metric("late", 1.0, run_id=first.info.run_id)
        mlflow.log_params({"late": 1}, run_id=first.info.run_id)
        mlflow.log_text("late", "late.txt", run_id=first.info.run_id)
        mlflow.log_metric("loss", 1.0)

    rows = map(json.loads, (Path(second.info.artifact_uri).parent / "metrics.jsonl").read_text().splitlines())
    written = [row for row in rows if "otel_ml" not in row.get("params", {})]
    assert not [row for row in written if "late" in json.dumps(row)]
    assert [row["values"] for row in written if "loss" in row.get("values", {})] == [{"loss": 1.0}]
    assert second.data.metrics == {"loss": 1.0}
    assert "it has ended: it is in no run" in capsys.readouterr().err
