"""`run.log_code()` records the files that W&B's records, under the names that it gives them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml.compat import wandb
from otel_ml.testing import Capture, capture

FILES = ("train.py", "model/net.py", "Dockerfile", "requirements.txt", "notes.md", "wandb/old.py", ".wandb/old.py")


def recorded(captured: Capture) -> dict[str, str]:
    """Return the recorded files of code by their paths."""
    kept = [event for event in captured.events if event.kind == "ml.artifact"]
    assert {event.attributes["ml.artifact.type"] for event in kept} <= {"code"}
    return {event.attributes["ml.artifact.path_in"]: event.body.decode() for event in kept}


@pytest.fixture
def captured() -> Iterator[Capture]:
    with capture() as run:
        yield run
        wandb.finish()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*FILES, "otel-ml-runs/default/01M8/artifacts/code/old.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_ML_DIR", "otel-ml-runs")
    return tmp_path


def test_code_is_what_wandb_takes_for_it_and_nothing_of_former_runs(captured: Capture, code: Path) -> None:
    artifact = wandb.init(project="digits").log_code()

    assert recorded(captured) == {name: name for name in FILES[:4]}
    assert artifact is not None
    assert artifact.name.startswith("source-digits-")
    assert artifact.type == "code"


def test_the_program_says_which_files_are_its_code(captured: Capture, code: Path) -> None:
    wandb.init().log_code(
        code,
        name="mine",
        include_fn=lambda path: path.endswith((".py", ".md")),
        exclude_fn=lambda path, root: os.path.relpath(path, root).startswith(
            ("wandb", ".wandb", "otel-ml-runs", "model")
        ),
    )

    assert set(recorded(captured)) == {"train.py", "notes.md"}


@pytest.mark.parametrize("root", [None, "model/nothing"])
def test_where_there_is_no_code_there_is_no_artifact(captured: Capture, code: Path, root: str | None) -> None:
    assert wandb.init().log_code(root) is None
    assert recorded(captured) == {}


def test_a_filter_that_fails_is_said_and_training_goes_on(captured: Capture, code: Path) -> None:
    assert wandb.init().log_code(".", include_fn=lambda path: path.no_such_method()) is None  # type: ignore[attr-defined]

    assert any("run.log_code()" in said and "AttributeError" in said for said in captured.notices), captured.notices


def test_the_folder_of_the_settings_is_recorded_where_code_is_to_be_saved(captured: Capture, code: Path) -> None:
    wandb.init(save_code=True, settings=wandb.Settings(code_dir="model"))

    assert set(recorded(captured)) == {"net.py"}


def test_the_main_script_is_recorded_where_code_is_to_be_saved(
    captured: Capture, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--lr=1"])
    wandb.init(save_code=True)

    assert recorded(captured) == {"code/train.py": "train.py"}


def test_a_disabled_run_reads_no_code(captured: Capture, code: Path) -> None:
    assert wandb.init(mode="disabled").log_code() is None
    assert recorded(captured) == {}
