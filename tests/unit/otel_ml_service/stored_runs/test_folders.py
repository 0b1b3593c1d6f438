from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_ml_service.stored_runs.run_folders import RunFolder, RunNotFoundError, find, run_folders
from tests.hooks import before
from tests.recorded_run import digits_records, write_run


def run_at(base: Path, run_id: str, modified: float, experiment: str = "digits") -> RunFolder:
    run = write_run(base, run_id, digits_records(steps=1), experiment=experiment)
    for path in (run.database, run.jsonl):
        os.utime(path, (modified, modified))
    return run


@pytest.fixture
def base(tmp_path: Path) -> Path:
    run_at(tmp_path, "01aaa", 1_000.0)
    run_at(tmp_path, "01abb", 3_000.0)
    run_at(tmp_path, "02ccc", 2_000.0, experiment="letters")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "run_id"),
    [
        ("01aaa", "01aaa"),
        ("01ab", "01abb"),
        ("02", "02ccc"),
        ("letters/02ccc", "02ccc"),
        ("latest", "01abb"),
        ("digits", "01abb"),  # an experiment's newest
    ],
)
def test_a_run_is_meant_by(base: Path, text: str, run_id: str) -> None:
    assert find(text, base).id == run_id


def test_several_runs_are_meant_by_a_short_beginning(base: Path) -> None:
    with pytest.raises(RunNotFoundError, match="the beginning of 2 runs: 01abb, 01aaa"):
        find("01", base)


def test_an_unknown_run_comes_with_the_nearest_one(base: Path) -> None:
    with pytest.raises(RunNotFoundError, match="Did you mean '02ccc'"):
        find("02cc-", base)


def test_an_empty_folder_comes_with_what_to_try(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="otel-ml demo"):
        find("latest", tmp_path)


def test_a_run_is_not_newer_for_being_closed_after_the_next_one_had_ended(base: Path) -> None:
    run = run_at(base, "03ddd", 2_500.0)
    os.utime(run.database, (9_000.0, 9_000.0))

    assert find("latest", base).id == "01abb"


def test_a_run_without_lines_is_as_new_as_its_database(base: Path) -> None:
    run = run_at(base, "03ddd", 9_000.0)
    run.jsonl.unlink()

    assert find("latest", base).id == "03ddd"


def test_the_word_for_the_newest_run_may_be_meant(base: Path) -> None:
    with pytest.raises(RunNotFoundError, match="Did you mean 'latest'"):
        find("lates", base)


def test_an_experiment_that_is_removed_while_runs_are_listed_is_not_among_them(tmp_path: Path) -> None:
    kept = write_run(tmp_path, "01kept", digits_records(steps=1), experiment="kept")
    gone = tmp_path / "gone"
    gone.mkdir()

    with before("os.scandir", lambda path: str(path) == str(gone), gone.rmdir):
        listed = run_folders(tmp_path)

    assert not gone.exists()
    assert listed == [kept]


def test_a_folder_of_a_run_that_is_removed_while_it_is_measured_has_no_size(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=1))
    size = run.size()
    kept = run.path / "state" / "kept"
    kept.mkdir()

    with before("os.scandir", lambda path: str(path) == str(kept), kept.rmdir):
        measured = run.size()

    assert measured == size
