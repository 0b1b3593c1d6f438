"""`MlflowClient` of a script: it records into the runs that the script has begun, and reads what they have."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_ml.compat import mlflow
from otel_ml.compat.mlflow.client import _NOT_KEPT, _OF_A_RUN
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import events, params, steps_of


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        while mlflow.active_run():
            mlflow.end_run()


def test_what_a_client_is_told_of_a_run_of_this_process_is_in_that_run(captured: Capture, tmp_path: Path) -> None:
    from mlflow.entities import Metric, Param, RunTag

    (tmp_path / "f.txt").write_text("x")
    client = mlflow.MlflowClient()
    with mlflow.start_run() as run:
        run_id = run.info.run_id
        with mlflow.start_run(run_name="child", nested=True) as child:
            client.log_metric(run_id, "loss", 0.5, step=3)
            client.log_metric(child.info.run_id, "loss", 0.25, step=1)
        client.log_param(run_id, "lr", 0.1)
        batch = [Metric("acc", 0.5, 0, 3), Metric("acc", 0.75, 0, 4)]
        client.log_batch(run_id, batch, [Param("n", "2")], [RunTag("team", "a")])
        client.set_tag(run_id=run_id, key="phase", value="warmup")
        client.log_text(run_id, "text", "a.txt")
        client.log_artifact(run_id, "f.txt", "sub")
        assert client.log_param(run_id, "m", 1, synchronous=False).wait() is None

    assert (steps_of(captured, "loss"), steps_of(captured, "child/loss")) == ({3: 0.5}, {1: 0.25})
    assert steps_of(captured, "acc") == {3: 0.5, 4: 0.75}
    assert (run.data.params, run.data.tags["team"]) == ({"lr": "0.1", "n": "2", "m": "1"}, "a")
    assert {key: params(captured)[key] for key in ("lr", "n", "m")} == {"lr": 0.1, "n": "2", "m": 1}
    assert params(captured)["tags"] == {"phase": "warmup"}
    assert (list(events(captured, "text")), list(events(captured, "artifact"))) == (["a.txt"], ["sub/f.txt"])
    assert client.get_run(run_id).data.metrics == {"loss": 0.5, "acc": 0.75}
    assert client.get_parent_run(child.info.run_id) is run
    assert captured.notices == []


def test_a_client_reads_the_history_and_the_artifacts_of_a_run_that_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    (tmp_path / "f.txt").write_text("seven b")
    (tmp_path / "folder").mkdir()
    shutil.copy("f.txt", "folder")
    with mlflow.start_run() as run:
        for step in (2, 5):
            mlflow.log_metric("loss", 1 / step, step=step)
        with mlflow.start_run(run_name="child", nested=True) as child:
            mlflow.log_metric("loss", 7.0, step=1)
        mlflow.log_artifact("f.txt", "sub")
        mlflow.log_artifacts("folder", "data")
    client = mlflow.MlflowClient()
    run_id = run.info.run_id

    history = client.get_metric_history(run_id, "loss")
    assert [(one.key, one.step, one.value) for one in history] == [("loss", 2, 0.5), ("loss", 5, 0.2)]
    assert all(run.info.start_time - 1000 <= one.timestamp <= run.info.end_time + 1000 for one in history)
    assert [one.value for one in client.get_metric_history(child.info.run_id, "loss")] == [7.0]
    assert client.get_metric_history(run_id, "none") == []
    assert [(one.path, one.is_dir) for one in client.list_artifacts(run_id)][-2:] == [("data", True), ("sub", True)]
    [inside] = client.list_artifacts(run_id, "sub")
    assert (inside.path, inside.is_dir, inside.file_size) == ("sub/f.txt", False, 7)
    assert [one.path for one in client.list_artifacts(run_id, "data/")] == ["data/f.txt"]
    assert Path(client.download_artifacts(run_id, "sub/f.txt")).read_text() == "seven b"
    folder = Path(client.download_artifacts(run_id, "", str(tmp_path / "copy")))
    assert (folder / "data" / "f.txt").read_text() == "seven b"
    with pytest.raises(OSError, match="no artifact 'su'"):
        client.download_artifacts(run_id, "su")


def test_where_no_exporter_keeps_a_history_that_is_said(captured: Capture) -> None:
    with mlflow.start_run() as run:
        mlflow.log_metric("loss", 1.0, step=0)

    assert mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss") == []
    [said] = captured.notices
    assert "MlflowClient.get_metric_history('loss') at test_mlflow_client.py" in said


def test_a_run_that_only_mlflow_has_is_read_from_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlflow_database: Path, captured: Capture
) -> None:
    shutil.copy(mlflow_database, tmp_path / "mine.db")
    uri = f"sqlite:///{tmp_path / 'mine.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with mlflow.start_run() as run:
        mlflow.log_metric("loss", 1.0, step=0)

    client = mlflow.MlflowClient(uri)
    assert client.get_metric_history(run.info.run_id, "loss") == []  # nobody writes into it here
    with pytest.raises(mlflow.MlflowException, match=run.info.run_id):
        client.list_artifacts(run.info.run_id)
    assert captured.notices == []


def test_any_other_run_and_method_is_that_of_mlflows_own_client(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlflow_database: Path, captured: Capture
) -> None:
    import mlflow as original

    shutil.copy(mlflow_database, tmp_path / "mine.db")
    before = original.get_tracking_uri()
    try:
        client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mine.db'}")
        theirs = client.create_run("0").info.run_id
        client.log_metric(theirs, "loss", 0.5, step=2)
        [found] = client.get_metric_history(theirs, "loss")

        assert (found.value, found.step) == (0.5, 2)
        assert steps_of(captured, "loss") == {}
        with pytest.raises(mlflow.MlflowException, match="unknown"):
            client.get_run("unknown")
    finally:
        original.set_tracking_uri(before)


def test_pictures_and_figures_of_a_client_are_in_the_run_that_it_names(captured: Capture) -> None:
    import numpy as np
    from matplotlib.figure import Figure

    client = mlflow.MlflowClient()
    with mlflow.start_run() as run, mlflow.start_run(run_name="child", nested=True):
        client.log_image(run.info.run_id, np.zeros((2, 2, 3), dtype=np.uint8), key="digit", step=1)
        client.log_figure(run.info.run_id, Figure(), "plot.png")

    assert set(events(captured, "image")) == {"digit", "plot.png"}
    assert captured.notices == []


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("set_terminated", ("FINISHED",)),
        ("update_run", ("FINISHED", "other")),
        ("log_inputs", ([],)),
        ("delete_tag", ("team",)),
        ("delete_run", ()),
    ],
)
def test_what_a_client_cannot_do_to_a_run_of_this_process_is_said_and_raises_nothing(
    captured: Capture, method: str, arguments: tuple[Any, ...]
) -> None:
    with mlflow.start_run(tags={"team": "a"}) as run:
        assert getattr(mlflow.MlflowClient(), method)(run.info.run_id, *arguments) is None
        mlflow.log_metric("loss", 1.0, step=0)

    assert steps_of(captured, "loss") == {0: 1.0}
    [said] = captured.notices
    assert f"{method}(" in said


def test_a_method_is_given_a_name_by_its_name(captured: Capture) -> None:
    with mlflow.start_run(run_name="first") as run:
        mlflow.MlflowClient().update_run(run.info.run_id, status="FAILED", name="second")

    [said] = captured.notices
    assert "update_run(" in said


def test_each_method_takes_what_that_of_mlflows_client_takes() -> None:
    from mlflow import MlflowClient

    assert all(hasattr(MlflowClient, name) for name in _NOT_KEPT)
    for name, ours in _OF_A_RUN.items():
        theirs = [*inspect.signature(getattr(MlflowClient, name)).parameters][1:]
        assert [*inspect.signature(ours).parameters] == theirs, name
