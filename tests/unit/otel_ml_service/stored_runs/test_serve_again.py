"""In which surroundings a run that was left is served again."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml_service.stored_runs.serve_again import _FROM_FOLDER, _environment_of, _surroundings
from otel_ml_service.stored_runs.unfinished import Unfinished


@pytest.mark.parametrize("text", ["mlruns", "sqlite:///mlflow.db", "file:runs", "./x", "a"])
def test_a_path_that_begins_where_the_service_was_started_is_known(text: str) -> None:
    assert _FROM_FOLDER.match(text)


@pytest.mark.parametrize("text", ["/data", "sqlite:////data", "https://host", "postgresql+psycopg://host/db", ""])
def test_an_address_and_a_whole_path_depend_on_no_folder(text: str) -> None:
    assert not _FROM_FOLDER.match(text)


@pytest.mark.parametrize("is_failing", [False, True])
def test_variables_and_folder_are_those_of_the_run_inside_the_block_alone(
    is_failing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path.cwd()
    monkeypatch.setenv("KEPT", "before")
    monkeypatch.delenv("ADDED", raising=False)

    with suppress(OSError), _surroundings({"KEPT": "inside", "ADDED": "inside"}, str(tmp_path)):
        inside = os.environ["KEPT"], os.environ["ADDED"], Path.cwd()
        os.environ["LEFT"] = "by a library"
        if is_failing:
            raise OSError

    assert inside == ("inside", "inside", tmp_path)
    assert os.environ["KEPT"] == "before"
    assert not {"ADDED", "LEFT"} & os.environ.keys()
    assert Path.cwd() == here


def test_without_a_folder_this_process_stays_where_it_is() -> None:
    here = Path.cwd()

    with _surroundings({}, ""):
        assert Path.cwd() == here


@pytest.mark.parametrize(("exporters", "given"), [((), {}), (("jsonl", "wandb"), {"OTEL_ML_EXPORTERS": "jsonl,wandb"})])
def test_a_run_without_a_folder_has_its_names_and_the_exporters_that_its_workers_said(
    exporters: tuple[str, ...], given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Unfinished("01abc", "digits", "best", Path("runs"), 1, rendezvous_of("01abc"), False, exporters)

    assert _environment_of(run, None) == {
        "OTEL_ML_EXPERIMENT_ID": "01abc", "OTEL_ML_EXPERIMENT_NAME": "digits", "OTEL_ML_RUN_NAME": "best",
        "OTEL_ML_DIR": str(tmp_path / "runs"), **given,
    }  # fmt: skip
