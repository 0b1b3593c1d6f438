"""A script written for MLflow's fluent interface records what it logs, with only its import changed."""

from __future__ import annotations

import io
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import otel_ml
from otel_ml.compat import mlflow
from otel_ml.compat.mlflow.open_runs import STATE
from otel_ml.testing import Capture, capture
from tests.e2e.jobs import the_run_in
from tests.unit.otel_ml.compat.recorded import events, steps_of
from tests.unit.otel_ml.lazy import Lazy
from tests.waiting import eventually


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        while mlflow.active_run():
            mlflow.end_run()


def params(captured: Capture) -> list[Any]:
    return [event.body for event in captured.events if event.kind == "ml.params"]


@pytest.mark.feature("F23", "yes", "an MLflow script runs with only its import changed")
def test_metrics_and_parameters_are_kept_as_they_are_given(captured: Capture) -> None:
    mlflow.set_experiment("digits")
    with mlflow.start_run(run_name="first") as run:
        assert mlflow.log_param("lr", 0.1) == 0.1
        mlflow.log_params({"model": {"layers": 2}})
        for step in range(3):
            mlflow.log_metric("loss", 3.0 - step, step=step)
            mlflow.log_metrics({"acc": 0.5, "lr": 0.1}, step=step)

        assert mlflow.active_run() is run
        assert run.info.run_id
        assert steps_of(captured, "loss") == {0: 3.0, 1: 2.0, 2: 1.0}
        assert steps_of(captured, "acc") == {0: 0.5, 1: 0.5, 2: 0.5}
        assert params(captured) == [{"lr": 0.1}, {"model": {"layers": 2}}]


def test_values_without_a_step_are_all_kept_where_mlflow_puts_them_at_0(captured: Capture) -> None:
    for value in (3.0, 2.0, 1.0):
        mlflow.log_metric("loss", value)
    mlflow.log_metric("test_acc", 0.5)
    mlflow.log_metrics({"a": 1.0, "b": 2.0})
    mlflow.log_metrics({"a": 3.0, "b": 4.0})

    assert steps_of(captured, "loss") == {0: 3.0, 1: 2.0, 2: 1.0}
    assert steps_of(captured, "test_acc") == {2: 0.5}
    assert steps_of(captured, "a") == {2: 1.0, 3: 3.0}
    assert steps_of(captured, "b") == {2: 2.0, 3: 4.0}


@pytest.mark.feature("I8", "yes", "a nested run is a part of the one run: its names begin with its own")
def test_a_nested_run_is_a_part_of_the_run(captured: Capture) -> None:
    with mlflow.start_run() as parent:
        with mlflow.start_run(run_name="trial-1", nested=True, tags={"kind": "trial"}) as child:
            mlflow.log_metric("loss", 1.0, step=0)
            mlflow.log_param("lr", 0.5)
            assert child.info.run_id == f"{parent.info.run_id}/trial-1"
        mlflow.log_metric("loss", 2.0, step=0)

        assert steps_of(captured, "trial-1/loss") == {0: 1.0}
        assert steps_of(captured, "loss") == {0: 2.0}
        assert params(captured) == [{"trial-1/tags": {"kind": "trial"}}, {"trial-1": {"lr": 0.5}}]
        assert child.info.status == "FINISHED"


def test_texts_dictionaries_figures_pictures_and_tables_are_kept_under_their_paths(captured: Capture) -> None:
    import matplotlib.pyplot as plt

    figure, _ = plt.subplots()
    mlflow.log_text("hello", "notes/a.txt")
    mlflow.log_dict({"a": [1]}, "config.json")
    mlflow.log_dict({"b": [1], "a": Path("x")}, "config.yaml")
    mlflow.log_figure(figure, "plots/curve.png")
    plt.close(figure)
    mlflow.log_image(np.full((4, 6, 3), 200.0), "picture.png")
    mlflow.log_metric("loss", 1.0, step=8)
    mlflow.log_image(np.zeros((4, 6)), key="sample", step=8)
    mlflow.log_table({"input": ["a", "b"], "output": ["c", "d"]}, "eval.json")
    mlflow.log_table({"input": "a", "output": "c"}, "one.json")

    assert {name: event.body for name, event in events(captured, "text").items()} == {
        "notes/a.txt": "hello",
        "config.json": '{\n  "a": [\n    1\n  ]\n}',
        "config.yaml": "b:\n- 1\na: x\n",
    }
    assert set(events(captured, "image")) == {"plots/curve.png", "picture.png", "sample"}
    assert events(captured, "image")["sample"].step == 8
    assert events(captured, "table")["eval.json"].body["rows"] == [["a", "c"], ["b", "d"]]
    assert events(captured, "table")["one.json"].body["rows"] == [["a", "c"]]


def test_files_folders_tags_and_data_sets_are_kept(captured: Capture, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights.pt").write_bytes(b"w")
    mlflow.log_artifact(str(tmp_path / "model" / "weights.pt"), "checkpoints")
    mlflow.log_artifacts(str(tmp_path / "model"))
    mlflow.set_tag("phase", "pretraining")
    mlflow.log_input("digits-v2", context="training")

    assert set(events(captured, "artifact")) == {"checkpoints/weights.pt", "model"}
    assert params(captured) == [{"tags": {"phase": "pretraining"}}, {"inputs": {"training": {"name": "digits-v2"}}}]


def test_what_is_not_kept_is_said_with_its_place_and_nothing_is_raised(
    captured: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    mlflow.set_tracking_uri("http://tracking:5000")
    mlflow.autolog()
    mlflow.pytorch.autolog()
    mlflow.pytorch.log_model(object(), "model")
    with mlflow.start_run() as run:
        assert mlflow.start_run() is run
        mlflow.log_metric("loss", 1.0, step="three")  # type: ignore[arg-type]
        mlflow.log_table(5, "bad.json")
        mlflow.log_metrics(5)  # type: ignore[arg-type]

        said = " ".join(captured.notices)
        for what in ("set_tracking_uri('http://tracking:5000')", "mlflow.autolog()", "pytorch.log_model()",
                     "mlflow.start_run()", "step='three'"):  # fmt: skip
            assert what in said, what
        assert steps_of(captured, "loss") == {0: 1.0}
    assert mlflow.get_tracking_uri() == "http://tracking:5000"


def test_what_asks_mlflows_server_is_mlflows_own() -> None:
    import mlflow as original

    assert mlflow.MlflowClient is original.MlflowClient
    assert mlflow.search_runs is original.search_runs


def test_what_reads_asks_the_store_that_the_script_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mlflow_database: Path, captured: Capture
) -> None:
    import mlflow as original

    shutil.copy(mlflow_database, tmp_path / "mine.db")
    before = original.get_tracking_uri()
    try:
        mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mine.db'}")
        theirs = mlflow.MlflowClient().create_run("0", run_name="theirs")

        assert mlflow.get_run(theirs.info.run_id).info.run_name == "theirs"
        assert list(mlflow.search_runs(["0"])["run_id"]) == [theirs.info.run_id]
        with pytest.raises(mlflow.MlflowException, match="unknown"):
            mlflow.get_run("unknown")
    finally:
        original.set_tracking_uri(before)
        STATE.write_to(None, {})
        STATE.uri = ""


def test_modules_for_models_are_mlflows_own_but_for_what_would_record(captured: Capture) -> None:
    import mlflow as original

    with mlflow.start_run() as run:
        said = mlflow.pytorch.log_model(object(), name="model")

    assert mlflow.pytorch.load_model is original.pytorch.load_model
    assert mlflow.pytorch.save_model is original.pytorch.save_model
    assert said.model_uri == f"runs:/{run.info.run_id}/model"
    assert mlflow.__version__ == original.__version__
    assert not any("load_model" in notice for notice in captured.notices)


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
    assert "mlflow.log_artifact(run_id='unknown') at test_mlflow.py" in said


def test_tables_that_a_run_has_logged_can_be_loaded_as_one(captured: Capture) -> None:
    with mlflow.start_run() as run:
        mlflow.log_table({"input": ["a", "b"], "score": [0.5, 1.0]}, "eval.json")
        mlflow.log_table({"input": "c", "score": 0.0}, "eval.json")
        loaded = mlflow.load_table("eval.json", extra_columns=["run_id"])
        assert mlflow.load_table("none.json").empty
    again = mlflow.load_table("eval.json", run_ids=[run.info.run_id])

    assert loaded.to_dict("list") == {
        "input": ["a", "b", "c"], "score": [0.5, 1.0, 0.0], "run_id": [run.info.run_id] * 3,
    }  # fmt: skip
    assert list(again["input"]) == ["a", "b", "c"]
    [said] = captured.notices
    assert "mlflow.load_table('none.json')" in said


def test_what_is_recorded_asynchronously_can_be_waited_for(captured: Capture) -> None:
    with mlflow.start_run():
        for operation in (
            mlflow.log_metric("a", "0.5", step=0, synchronous=False),
            mlflow.log_metrics({"b": 1.0}, step=0, synchronous=False),
            mlflow.log_param("p", 1, synchronous=False),
            mlflow.log_params({"q": 1}, synchronous=False),
            mlflow.set_tag("t", 1, synchronous=False),
        ):
            operation.wait()
        assert (mlflow.log_metric("a", 1.0, step=1), mlflow.log_param("r", 1)) == (None, 1)

    assert steps_of(captured, "a") == {0: 0.5, 1: 1.0}


def test_a_run_that_has_ended_says_what_it_recorded(captured: Capture) -> None:
    with mlflow.start_run(tags={"team": "a"}) as run:
        mlflow.log_metric("loss", np.float32(0.5))
        mlflow.log_metrics({"acc": 1})
        mlflow.log_param("lr", 0.1)
        with mlflow.start_run(run_name="child", nested=True) as child:
            mlflow.log_metric("loss", 2.0)
    last = mlflow.last_active_run()

    assert last is child
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
    try:
        mlflow.set_tracking_uri(uri)
        mlflow.set_experiment("named")
        with mlflow.start_run():
            mlflow.log_metric("loss", 0.5, step=0)
    finally:
        STATE.write_to(None, {})
        STATE.uri = ""
        mlflow.set_experiment("")

    client = MlflowClient(uri)
    experiment = eventually(lambda: client.get_experiment_by_name("named"), timeout=120)
    [found] = eventually(lambda: client.search_runs([experiment.experiment_id], "metrics.loss = 0.5"), timeout=120)
    assert found.data.metrics["loss"] == 0.5


def test_streams_and_data_sets_are_kept(captured: Capture) -> None:
    mlflow.log_stream(io.BytesIO(b"content"), "deep/file.bin")
    mlflow.log_inputs(["one", "two"], contexts=["train", "test"])
    mlflow.delete_tag("unknown")

    assert "deep/file.bin" in events(captured, "artifact")
    assert params(captured) == [{"inputs": {"train": {"name": "one"}}}, {"inputs": {"test": {"name": "two"}}}]


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
    experiment = eventually(lambda: client.get_experiment_by_name("digits"), timeout=120)
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


def test_parameters_of_which_a_value_is_missing_are_recorded_without_it(captured: Capture) -> None:
    mlflow.log_params(Lazy())
    mlflow.set_tags(Lazy())

    assert params(captured) == [{"dim": 64}, {"tags": {"dim": 64}}]
    assert mlflow.active_run().data.params == {"dim": "64"}
    [said] = captured.notices
    assert "cannot read missing" in said


def test_other_names_are_mlflows_own_and_said_to_know_nothing_of_this_run(captured: Capture) -> None:
    import mlflow as original

    mlflow.start_run()

    assert mlflow.start_span is original.start_span
    assert any("mlflow.start_span at test_mlflow.py" in notice for notice in captured.notices)
    with pytest.raises(AttributeError, match=r"otel_ml\.compat\.mlflow has no 'no_such_name'"):
        _ = mlflow.no_such_name


def test_options_that_no_backend_has_are_said_where_they_are_given(captured: Capture) -> None:
    picture = np.zeros((2, 3), np.uint8)
    mlflow.start_run()

    mlflow.log_image(picture, key="a", step=0, timestamp=1, synchronous=False)
    mlflow.log_image(picture, key="b", step=0)
    mlflow.log_input("rows", context="train", tags={"split": "a"})
    mlflow.delete_experiment_tag("team")

    for said in (
        "mlflow.log_image(timestamp=1) at ",
        "mlflow.log_input(tags={'split': 'a'}) at ",
        "delete_experiment_tag(",
    ):
        assert sum(said in notice for notice in captured.notices) == 1, (said, captured.notices)
    assert len(captured.notices) == 3


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


def test_calls_that_mlflow_refuses_are_said_with_its_error(captured: Capture) -> None:
    run = mlflow.start_run(experiment_id=["a", "b"])  # type: ignore[arg-type]
    mlflow.start_run()
    mlflow.delete_tag("nowhere")
    mlflow.log_metric("loss", "no number")
    mlflow.end_run()
    mlflow.start_run(parent_run_id="elsewhere")

    for said in (
        "MlflowException: Invalid experiment id: ['a', 'b']",
        f"Exception: Run with UUID {run.info.run_id} is already active",
        "MlflowException: No tag with name: nowhere",
        "'loss'",
        "mlflow.start_run(parent_run_id='elsewhere')",
    ):
        assert sum(said in notice for notice in captured.notices) == 1, (said, captured.notices)
    assert mlflow.active_run() is not None
