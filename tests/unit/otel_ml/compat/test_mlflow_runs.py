"""A run of a script that was written for MLflow: which it is, where it goes, how it ends, what it says of itself."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml.compat import mlflow
from otel_ml.compat.mlflow.open_runs import OpenRuns
from otel_ml.testing import Capture, capture
from tests.e2e.jobs import the_run_in
from tests.unit.otel_ml.compat.recorded import events, steps_of
from tests.waiting import eventually


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        while mlflow.active_run():
            mlflow.end_run()


def params(captured: Capture) -> list[Any]:
    return [event.body for event in captured.events if event.kind == "ml.params"]


def test_a_run_id_names_the_run_that_is_recorded_into_also_of_another_thread(captured: Capture) -> None:
    def worker(run_id: str) -> None:
        mlflow.log_metric("worker", 2.0, step=0, run_id=run_id)
        mlflow.log_params({"threads": 1}, run_id=run_id)

    with mlflow.start_run() as parent:
        with mlflow.start_run(run_name="child", nested=True):
            mlflow.log_metric("loss", 1.0, step=0, run_id=parent.info.run_id)
            mlflow.log_metrics({"acc": 0.5}, step=0, run_id=parent.info.run_id)
            mlflow.log_text("text", "a.txt", run_id=parent.info.run_id)
        thread = threading.Thread(target=worker, args=(parent.info.run_id,))
        thread.start()
        thread.join()
        mlflow.log_artifact("none", run_id="unknown")

    assert (steps_of(captured, "loss"), steps_of(captured, "acc")) == ({0: 1.0}, {0: 0.5})
    assert steps_of(captured, "worker") == {0: 2.0}
    assert (list(events(captured, "text")), params(captured)) == (["a.txt"], [{"threads": 1}])
    assert parent.data.metrics == {"loss": 1.0, "acc": 0.5, "worker": 2.0}
    [said] = [notice for notice in captured.notices if "run_id=" in notice]
    assert "mlflow.log_artifact(run_id='unknown') at test_mlflow_runs.py" in said


def test_a_run_that_has_ended_says_what_it_recorded(captured: Capture) -> None:
    with mlflow.start_run(tags={"team": "a"}) as run:
        mlflow.log_metric("loss", np.float32(0.5))
        mlflow.log_metrics({"acc": 1})
        mlflow.log_param("lr", 0.1)
        with mlflow.start_run(run_name="child", nested=True) as child:
            mlflow.log_metric("loss", 2.0)
    last = mlflow.last_active_run()

    assert last is run
    assert mlflow.get_run(run.info.run_id) is mlflow.get_parent_run(child.info.run_id) is run
    assert (run.data.metrics, run.data.params) == ({"loss": 0.5, "acc": 1.0}, {"lr": "0.1"})
    assert run.data.tags.items() >= {"team": "a", "mlflow.runName": run.info.run_name}.items()
    assert child.data.tags["mlflow.parentRunId"] == run.info.run_id
    assert child.data.metrics == {"loss": 2.0}
    assert run.info.end_time >= run.info.start_time


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_a_run_has_the_status_that_it_was_ended_with(captured: Capture, status: str) -> None:
    run = mlflow.start_run()
    mlflow.end_run(status)

    assert run.info.status == status


def test_an_experiment_is_chosen_by_its_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "by-variable")
    mlflow.set_experiment(experiment_name="")
    assert mlflow.get_experiment_by_name("by-id") is None
    with mlflow.start_run(experiment_id=mlflow.create_experiment("by-id")):
        pass
    with mlflow.start_run():
        pass

    assert {run.name for run in (tmp_path / "otel-ml-runs").iterdir() if run.is_dir()} >= {"by-id", "by-variable"}
    assert mlflow.get_experiment_by_name("by-id").experiment_id == "by-id"
    assert mlflow.get_experiment_by_name("by-variable").name == "by-variable"


def test_a_run_goes_to_the_server_that_the_script_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlflow_database: Path
) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv("OTEL_ML_EXPORTERS", raising=False)
    shutil.copy(mlflow_database, tmp_path / "mine.db")
    uri = f"sqlite:///{tmp_path / 'mine.db'}"
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("named")
    with mlflow.start_run():
        mlflow.log_metric("loss", 0.5, step=0)

    client = MlflowClient(uri)
    experiment = eventually(lambda: client.get_experiment_by_name("named"), timeout=120)
    [found] = eventually(lambda: client.search_runs([experiment.experiment_id], "metrics.loss = 0.5"), timeout=120)
    assert found.data.metrics["loss"] == 0.5


@pytest.mark.timeout(300)  # MLflow's import of the service gives way to the tests beside it
def test_mlflow_finds_a_run_by_its_tags(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlflow_database: Path) -> None:
    from mlflow import MlflowClient

    root = tmp_path / "otel-ml-runs"
    root.mkdir()
    shutil.copy(mlflow_database, root / "mlflow.db")
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "mlflow,jsonl")
    mlflow.set_experiment("digits")
    with mlflow.start_run(tags={"team": "a", "data": "s3://x", "n": 2}) as run:
        mlflow.set_tags({"phase": "warmup", "mlflow.note.content": "a night"})
        mlflow.set_tag("phase", "training")
    the_run_in(root)

    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    # The service goes on delivering when the program has ended.
    experiment = eventually(lambda: client.get_experiment_by_name("digits"), timeout=240)
    [found] = eventually(lambda: client.search_runs([experiment.experiment_id], "tags.team = 'a'"))
    assert found.data.tags["otel_ml.run_id"] == run.info.run_id
    assert (found.data.tags["data"], found.data.tags["n"]) == ("s3://x", "2")
    [later] = eventually(lambda: client.search_runs([experiment.experiment_id], "tags.phase = 'training'"))
    assert later.data.tags["mlflow.note.content"] == "a night"


@pytest.mark.feature("M26", "better", "`end_run(status)` and an exception in the block end the run so in every backend")
def test_one_run_is_written_and_goes_on_under_its_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    mlflow.set_experiment("digits")
    with mlflow.start_run(run_name="first", tags={"team": "a"}) as run:
        mlflow.log_metric("loss", 2.0, step=0)
    assert mlflow.active_run() is None
    folder = the_run_in(tmp_path / "otel-ml-runs")
    assert folder.parent.name == "digits"

    mlflow.start_run(run_id=run.info.run_id)
    mlflow.log_metric("loss", 1.0, step=1)
    mlflow.end_run("FAILED")

    assert otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["loss"] == ([0, 1], [2.0, 1.0])
    assert '"failed"' in (folder / "metrics.jsonl").read_text()


def test_the_run_id_of_the_environment_is_that_of_one_run_as_in_mlflow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    monkeypatch.setenv("MLFLOW_RUN_ID", "abc123")

    with mlflow.start_run() as first:
        left = os.environ.get("MLFLOW_RUN_ID")
        # Named while a run is open: forgotten with its end.
        monkeypatch.setenv("MLFLOW_RUN_ID", "abc123")
    the_run_in(tmp_path / "otel-ml-runs")
    with mlflow.start_run() as second:
        pass

    assert (first.info.run_id, left) == ("abc123", None)
    assert second.info.run_id != "abc123"


def test_the_description_and_the_name_may_be_tags_as_in_mlflow(captured: Capture) -> None:
    with mlflow.start_run(tags={"mlflow.note.content": "what it is", "mlflow.runName": "first", "team": "a"}) as run:
        assert run.data.tags["mlflow.note.content"] == "what it is"
    with mlflow.start_run(description="one", tags={"mlflow.note.content": "another"}) as described:
        assert described.data.tags["mlflow.note.content"] == "one"

    assert any("MlflowException: Description is already set" in notice for notice in captured.notices)


def test_a_run_begun_with_its_description_as_a_tag_has_it_as_its_notes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    mlflow.set_experiment("digits")
    with mlflow.start_run(tags={"mlflow.note.content": "what it is", "mlflow.runName": "first"}) as run:
        assert run.info.run_name == "first"

    folder = the_run_in(tmp_path / "otel-ml-runs")
    assert (folder / "state" / "notes").read_text() == "what it is"
    assert "mlflow.note.content:" not in (folder / "metrics.jsonl").read_text()


def test_a_run_that_goes_on_has_what_it_recorded_before(captured: Capture) -> None:
    with mlflow.start_run() as first:
        mlflow.log_metric("loss", 0.5)
        mlflow.log_param("lr", 0.1)
    with mlflow.start_run(first.info.run_id, tags={"again": 1}) as second:
        mlflow.log_metric("acc", "0.25")

    assert second.data.metrics == {"loss": 0.5, "acc": 0.25}
    assert (second.data.params, second.data.tags["again"]) == ({"lr": "0.1"}, "1")
    assert (first.info.status, second.info.status) == ("FINISHED", "FINISHED")


def test_what_a_run_and_an_experiment_say_of_themselves_can_be_read_as_a_dictionary(captured: Capture) -> None:
    with mlflow.start_run() as run:
        mlflow.log_param("lr", 0.1)
        mlflow.log_input("digits", context="train", tags={"split": "a"})
        mlflow.set_experiment_tags({"owner": "me", "n": 5})
    experiment = mlflow.get_experiment(run.info.experiment_id)

    assert run.to_dictionary()["data"]["params"] == {"lr": "0.1"}
    assert dict(run.info)["run_id"] == run.info.run_id
    [given] = run.inputs.dataset_inputs
    assert (given.dataset.name, {tag.key: tag.value for tag in given.tags}) == (
        "digits", {"split": "a", "mlflow.data.context": "train"},
    )  # fmt: skip
    assert (experiment.tags, experiment.creation_time > 0) == ({"owner": "me", "n": "5"}, True)


def test_the_last_active_run_is_the_innermost_that_is_open_else_the_one_that_ended_last(captured: Capture) -> None:
    with mlflow.start_run() as parent:
        with mlflow.start_run(run_name="child", nested=True) as child:
            assert mlflow.last_active_run() is child
        assert mlflow.last_active_run() is parent
    assert mlflow.last_active_run() is parent


def test_a_run_that_goes_on_under_its_id_keeps_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    with mlflow.start_run(run_name="first") as run:
        mlflow.log_metric("loss", 1.0)

    with mlflow.start_run(run_id=run.info.run_id) as again:
        assert (again.info.run_name, again.run.name) == ("first", "first")

    the_run_in(tmp_path / "otel-ml-runs")
    forgotten = OpenRuns()  # what a process has that begins now
    with forgotten.begin(run.info.run_id, None, {}, None) as later:
        assert (later.info.run_name, later.run.name) == ("first", "first")


def test_an_experiment_that_is_created_twice_or_named_in_two_ways_is_said(captured: Capture) -> None:
    mlflow.create_experiment("created-twice", tags={"team": "a"})
    assert captured.notices == []

    assert mlflow.create_experiment("created-twice") == "created-twice"
    assert mlflow.set_experiment("created-twice", experiment_id="7").name == "created-twice"

    assert mlflow.get_experiment_by_name("created-twice").tags == {"team": "a"}
    said = [notice for notice in captured.notices if "MlflowException" in notice]
    assert ["already exists" in said[0], "exactly one of" in said[1], len(said)] == [True, True, 2]
    mlflow.set_experiment("")


@pytest.mark.timeout(300)  # MLflow's import of the service gives way to the tests beside it
def test_a_run_is_in_the_store_of_mlflow_itself_where_nobody_says_which(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlflow_database: Path
) -> None:
    import mlflow as original

    monkeypatch.delenv("OTEL_ML_EXPORTERS", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(mlflow_database, tmp_path / "mlflow.db")
    original.set_tracking_uri(None)
    mlflow.set_experiment("as before")
    with mlflow.start_run():
        assert not mlflow.is_tracking_uri_set()
        mlflow.log_metric("loss", 0.5, step=0)

    where = original.get_tracking_uri()
    assert mlflow.get_tracking_uri() == where
    client = original.MlflowClient(where)
    experiment = eventually(lambda: client.get_experiment_by_name("as before"), timeout=240)
    [found] = eventually(lambda: client.search_runs([experiment.experiment_id], "metrics.loss = 0.5"), timeout=120)
    assert found.data.metrics["loss"] == 0.5
