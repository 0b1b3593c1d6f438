"""What a script for MLflow says of its runs later, or wrongly: names, endings, runs that have ended."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from otel_ml._internal.error_reporting import reporter
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


@pytest.mark.parametrize("has_own", [True, False])
def test_what_is_for_a_run_of_another_process_is_in_that_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_own: bool
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    theirs = uuid.uuid4().hex
    own = mlflow.start_run() if has_own else None
    mlflow.log_metric("eval", 0.5, step=3, run_id=theirs)
    mlflow.log_metric("eval", 0.25, step=4, run_id=theirs)
    mlflow.log_params({"split": "test"}, run_id=theirs)
    mlflow.log_metric("eval", 1.0, step=3, run_id=f"{theirs}/trial-1")
    assert mlflow.active_run() is own
    mlflow.log_metric("loss", 1.0, step=0)
    [active] = [mlflow.active_run()]
    assert active is not None
    mlflow.end_run()
    with mlflow.start_run(run_id=theirs):  # which would be the end of the process
        mlflow.log_metric("eval", 0.125, step=5)

    [folder] = tmp_path.glob(f"otel-ml-runs/*/{theirs}")
    assert otel_ml.read(folder)["eval"] == ([3, 4, 5], [0.5, 0.25, 0.125])
    assert otel_ml.read(folder)["trial-1/eval"] == ([3], [1.0])
    assert "loss" not in otel_ml.read(folder)
    assert active.info.run_id != theirs
    mine = otel_ml.read(Path(active.info.artifact_uri).parent)
    assert (mine["loss"], "eval" in mine) == (([0], [1.0]), False)


def test_a_run_goes_on_in_its_own_experiment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    reporter.forget()  # which says only so much in a process
    mlflow.set_experiment("digits")
    with mlflow.start_run() as first:
        pass
    mlflow.set_experiment("other")
    with mlflow.start_run(run_id=first.info.run_id) as again:
        assert again.info.experiment_id == "digits"
    mlflow.set_experiment("")

    said = capsys.readouterr().err
    assert "MlflowException: active run ID does not match environment run ID" in said
    assert "goes on in 'digits', where it is, not in 'other'" in said


@pytest.mark.parametrize("run_id", ["not an id", "", "not an id/part"])
def test_what_can_name_no_run_raises_nothing(monkeypatch: pytest.MonkeyPatch, run_id: Any) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "none")
    with mlflow.start_run():
        mlflow.log_metric("loss", 1.0, run_id=run_id)
        mlflow.log_params({"lr": 1}, run_id=run_id)
    with mlflow.start_run(run_id="not an id"):  # which would be the end of the process
        pass


@pytest.mark.parametrize(
    ("variables", "call", "given", "experiment"),
    [  # an id for each: what is wrong with one is said once a process
        ({"MLFLOW_EXPERIMENT_ID": "777123"}, lambda: None, "777123", "777123"),
        ({"MLFLOW_EXPERIMENT_ID": "777124", "MLFLOW_EXPERIMENT_NAME": "digits"}, lambda: None, "777124", "digits"),
        ({}, lambda: mlflow.set_experiment(experiment_id="777125"), "777125", "777125"),
    ],
)
def test_an_id_that_no_experiment_here_has_is_said(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    variables: dict[str, str],
    call: Callable[[], object],
    given: str,
    experiment: str,
) -> None:
    reporter.forget()  # what tests before have made it say, of which there may be as many as it remembers
    for name, value in {**variables, "OTEL_ML_DIR": str(tmp_path), "OTEL_ML_EXPORTERS": "none"}.items():
        monkeypatch.setenv(name, value)
    call()
    with mlflow.start_run() as run:
        assert run.info.experiment_id == experiment
    mlflow.set_experiment("")

    said = capsys.readouterr().err
    assert "MlflowException" in said
    assert f"{given!r}" in said


@pytest.mark.parametrize(("make", "name"), [(mlflow.create_experiment, "2024"), (mlflow.set_experiment, "2025")])
def test_an_id_that_an_experiment_here_has_is_taken(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    make: Callable[[str], object],
    name: str,
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "none")
    make(name)
    mlflow.set_experiment("")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", name)
    with mlflow.start_run() as run:
        assert run.info.experiment_id == name

    assert "MlflowException" not in capsys.readouterr().err
