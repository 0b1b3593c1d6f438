"""What a script for MLflow has logged it reads back by `mlflow.artifacts`, also while its run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from otel_ml.compat import mlflow
from otel_ml.testing import Capture, capture


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        mlflow.end_run()


@pytest.mark.parametrize("name", ["a/b.json", "b.yaml", "c.yml"])
def test_a_dictionary_is_read_back_as_it_was_logged(captured: Capture, name: str) -> None:
    run_id = mlflow.start_run().info.run_id
    mlflow.log_dict({"a": [1, 2], "b": None}, name)

    assert mlflow.artifacts.load_dict(f"runs:/{run_id}/{name}") == {"a": [1, 2], "b": None}


def test_a_text_is_read_back_by_either_address_and_from_a_copy(captured: Capture, tmp_path: Path) -> None:
    run = mlflow.start_run()
    run.info.artifact_uri = "/runs/one/artifacts"
    mlflow.log_text("first", "notes/a.txt")
    mlflow.log_text("second", "notes/a.txt")

    uri = mlflow.get_artifact_uri("notes/a.txt")
    assert (mlflow.artifacts.load_text(uri), mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/notes/a.txt")) == (
        "second",
        "second",
    )
    copy = mlflow.artifacts.download_artifacts(
        run_id=run.info.run_id, artifact_path="notes/a.txt", dst_path=str(tmp_path)
    )
    assert (copy, Path(copy).read_text()) == (str(tmp_path / "notes" / "a.txt"), "second")


def test_a_text_of_a_nested_run_is_that_runs_own(captured: Capture) -> None:
    parent = mlflow.start_run()
    mlflow.log_text("of the study", "a.txt")
    with mlflow.start_run(run_name="trial", nested=True) as trial:
        mlflow.log_text("of the trial", "a.txt")

    assert mlflow.artifacts.load_text(f"runs:/{trial.info.run_id}/a.txt") == "of the trial"
    assert mlflow.artifacts.load_text(f"runs:/{parent.info.run_id}/a.txt") == "of the study"


def test_the_newest_texts_stay_in_memory(captured: Capture) -> None:
    run = mlflow.start_run()
    for number in range(101):
        mlflow.log_text(str(number), f"{number}.txt")

    assert len(run.texts) == 100
    assert mlflow.artifacts.load_text(f"runs:/{run.info.run_id}/100.txt") == "100"
    assert "0.txt" not in run.texts


def test_what_others_have_is_asked_of_the_package(captured: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    original = import_module("mlflow")
    asked: list[Any] = []
    monkeypatch.setattr(original.artifacts, "load_text", lambda uri: asked.append(uri) or "theirs")
    mlflow.start_run()

    assert mlflow.artifacts.load_text("runs:/no-run-of-this-process/a.txt") == "theirs"
    assert asked == ["runs:/no-run-of-this-process/a.txt"]


def test_a_run_has_no_outputs(captured: Capture) -> None:
    assert mlflow.start_run().outputs.model_outputs == []
