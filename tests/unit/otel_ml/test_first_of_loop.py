"""Which run of a loop has the id that a scheduler gives, when the program is started again in the middle of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml._internal.identity.first_of_loop import first_of_loop, note_first_of_loop
from otel_ml.config import Config


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.from_env(
        {"OTEL_ML_DIR": str(tmp_path / "runs"), "OTEL_ML_EXPERIMENT_ID": "cv"}, experiment="digits", name="fold-0"
    )


def test_the_first_start_is_called_as_it_says(config: Config) -> None:
    assert first_of_loop(config) == ("digits", "fold-0")


def test_a_start_in_the_middle_of_the_loop_finds_which_was_the_first(config: Config) -> None:
    note_first_of_loop(config, ("digits", "fold-0"))

    assert first_of_loop(replace(config, name="fold-2")) == ("digits", "fold-0")
    assert first_of_loop(replace(config, experiment="letters")) == ("digits", "fold-0")
    assert first_of_loop(replace(config, id="other", name="fold-2")) == ("digits", "fold-2")
    assert first_of_loop(replace(config, role="evaluator", name="fold-2")) == ("digits", "fold-2")


def test_the_first_that_is_called_by_another_date_goes_on_under_its_new_name(config: Config) -> None:
    note_first_of_loop(config, ("digits", "train-2026-11-27"))

    assert first_of_loop(replace(config, name="train-2026-12-01")) == ("digits", "train-2026-12-01")


def test_what_was_noted_first_stays(config: Config) -> None:
    note_first_of_loop(config, ("digits", "fold-0"))
    note_first_of_loop(config, ("digits", "fold-1"))

    assert first_of_loop(replace(config, name="fold-2")) == ("digits", "fold-0")


def test_a_child_is_in_the_run_of_its_parent_and_notes_nothing(config: Config) -> None:
    child = replace(config, parent="a:1:0::0:trainer")
    note_first_of_loop(child, ("digits", "fold-0"))
    assert not config.dir.exists()
    note_first_of_loop(config, ("digits", "fold-0"))

    assert first_of_loop(replace(child, name="fold-2")) == ("digits", "fold-2")


def test_a_job_that_sends_all_it_has_elsewhere_leaves_no_folder(config: Config, tmp_path: Path) -> None:
    remote = Config.from_env(
        {"OTEL_ML_DIR": str(tmp_path / "runs"), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, id="cv"
    )
    note_first_of_loop(remote, ("digits", "fold-0"))
    is_there = config.dir.exists()
    config.dir.mkdir()
    note_first_of_loop(remote, ("digits", "fold-0"))

    assert not is_there
    (noted,) = (config.dir / ".meeting").iterdir()
    assert noted.parent.stat().st_mode & 0o777 == 0o700
    assert noted.name.endswith(".first.json")


@pytest.mark.parametrize("content", ["", "[1]", '["a", "b", "c"]', "5", "[1, 2]"])
def test_a_note_that_cannot_be_read_is_none(config: Config, content: str) -> None:
    note_first_of_loop(config, ("digits", "fold-0"))
    (noted,) = (config.dir / ".meeting").iterdir()
    noted.write_text(content)

    assert first_of_loop(replace(config, name="fold-2")) == ("digits", "fold-2")
