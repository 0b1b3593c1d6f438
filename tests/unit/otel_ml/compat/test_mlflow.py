"""A script written for MLflow's fluent interface records what it logs, with only its import changed."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from otel_ml.compat import mlflow
from otel_ml.testing import Capture, capture
from tests.unit.otel_ml.compat.recorded import events, steps_of
from tests.unit.otel_ml.lazy import Lazy


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


def test_values_with_and_without_a_step_under_one_name_are_all_kept(captured: Capture) -> None:
    mlflow.log_metric("loss", 5.0, step=5)
    mlflow.log_metric("loss", 6.0)
    for step in (8, 9):
        mlflow.log_metric("loss", float(step), step=step)
    mlflow.log_metric("acc", 0.5)
    mlflow.log_metric("loss", 10.0)

    assert steps_of(captured, "loss") == {5: 5.0, 6: 6.0, 8: 8.0, 9: 9.0, 10: 10.0}
    assert steps_of(captured, "acc") == {9: 0.5}


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
    mlflow.log_table({"input": "a", "score": np.float64(0.5)}, "numpy.json")
    mlflow.log_table({"input": ["a", "b"], "model": "m"}, "repeated.json")

    assert {name: event.body for name, event in events(captured, "text").items()} == {
        "notes/a.txt": "hello",
        "config.json": '{\n  "a": [\n    1\n  ]\n}',
        "config.yaml": "b:\n- 1\na: x\n",
    }
    assert set(events(captured, "image")) == {"plots/curve.png", "picture.png", "sample"}
    assert events(captured, "image")["sample"].step == 8
    assert events(captured, "table")["eval.json"].body["rows"] == [["a", "c"], ["b", "d"]]
    assert events(captured, "table")["one.json"].body["rows"] == [["a", "c"]]
    assert events(captured, "table")["numpy.json"].body["rows"] == [["a", 0.5]]
    assert events(captured, "table")["repeated.json"].body["rows"] == [["a", "m"], ["b", "m"]]


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

    assert mlflow.search_experiments is original.search_experiments
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


def test_modules_for_models_are_mlflows_own_but_for_what_would_record(captured: Capture) -> None:
    import mlflow as original

    with mlflow.start_run() as run:
        said = mlflow.pytorch.log_model(object(), name="model")

    assert mlflow.pytorch.load_model is original.pytorch.load_model
    assert mlflow.pytorch.save_model is original.pytorch.save_model
    assert said.model_uri == f"runs:/{run.info.run_id}/model"
    assert mlflow.__version__ == original.__version__
    assert not any("load_model" in notice for notice in captured.notices)


def test_a_run_says_the_last_value_also_of_arrays_and_tensors(captured: Capture) -> None:
    with mlflow.start_run() as run:
        mlflow.log_metric("array", np.array([0.5]))
        mlflow.log_metrics({"tensor": torch.tensor(0.25), "several": np.ones(2)})

    assert mlflow.get_run(run.info.run_id).data.metrics == {"array": 0.5, "tensor": 0.25}


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


def test_streams_and_data_sets_are_kept(captured: Capture) -> None:
    mlflow.log_stream(io.BytesIO(b"content"), "deep/file.bin")
    mlflow.log_inputs(["one", "two"], contexts=["train", "test"])
    mlflow.delete_tag("unknown")

    assert "deep/file.bin" in events(captured, "artifact")
    assert params(captured) == [{"inputs": {"train": {"name": "one"}}}, {"inputs": {"test": {"name": "two"}}}]


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


def test_an_image_without_a_name_is_kept_and_said(captured: Capture) -> None:
    with mlflow.start_run():
        mlflow.log_image(np.zeros((2, 3, 3), np.uint8))

    assert list(events(captured, "image")) == ["image"]
    assert any("mlflow.log_image()" in notice and "TypeError" in notice for notice in captured.notices)
