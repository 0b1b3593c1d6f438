"""What others put into a run's folder before it was this user's: it is moved aside, and what it leads to stays."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from otel_ml.wire.folder_ownership import QUARANTINE, claim, is_ours, may_hold_ours, renamed_warning


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "experiment" / "run"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_folder_is_made_with_those_above_and_nothing_is_said(folder: Path) -> None:
    old = os.umask(0)
    try:
        claim(folder)
    finally:
        os.umask(old)

    assert is_ours(folder)
    assert (mode(folder.parent), mode(folder)) == (0o775, 0o775)
    assert (renamed_warning(folder), list(folder.iterdir())) == ("", [])


def test_files_and_folders_of_a_run_stay_where_they_are_however_often_it_is_claimed(folder: Path) -> None:
    claim(folder)
    (folder / "state").mkdir()
    (folder / "state" / "run.db").write_text("records")
    (folder / "run.log").write_text("lines")

    claim(folder)
    claim(folder)

    assert (folder / "state" / "run.db").read_text() == "records"
    assert (folder / "run.log").read_text() == "lines"
    assert renamed_warning(folder) == ""


def test_links_second_names_and_pipes_are_moved_aside_from_any_depth_and_named(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("somebody's")
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "run.log").symlink_to(precious)
    (folder / "a" / "events").symlink_to(tmp_path)
    (folder / "a" / "b" / "hard").hardlink_to(precious)
    os.mkfifo(folder / "a" / "b" / "pipe")
    (folder / "a" / "b" / "own").write_text("stays")

    claim(folder)

    assert [path.name for path in sorted(folder.rglob("*")) if QUARANTINE not in path.parts] == ["a", "b", "own"]
    assert precious.read_text() == "somebody's"
    said = renamed_warning(folder)
    assert said.startswith(
        f"In {folder} 4 files or folders were links or somebody else's: events, hard, pipe, run.log."
    )
    claim(folder)
    assert renamed_warning(folder) == said


def test_what_the_job_itself_links_into_its_artifacts_stays(folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    model.write_text("weights")
    for way in ("artifacts/model", "state/kept"):
        (folder / way).mkdir(parents=True)
        (folder / way / "model.pt").hardlink_to(model)
        (folder / way / "link").symlink_to(model)
    (folder / "artifacts.pt").hardlink_to(model)

    claim(folder)

    for way in ("artifacts/model", "state/kept"):
        assert [path.name for path in (folder / way).iterdir()] == ["model.pt"]
    assert "3 files or folders" in renamed_warning(folder)
    assert "artifacts.pt, link, link" in renamed_warning(folder)


def test_a_link_planted_where_things_are_moved_to_is_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.mkdir(parents=True)
    (folder / QUARANTINE).symlink_to(elsewhere)
    (folder / "run.log").symlink_to(tmp_path / "precious")
    assert renamed_warning(folder) == ""

    claim(folder)

    assert list(elsewhere.iterdir()) == []
    assert is_ours(folder / QUARANTINE)
    assert mode(folder / QUARANTINE) == 0o700
    assert "run.log" in renamed_warning(folder)


def test_of_more_than_ten_names_ten_are_said(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(12):
        (folder / f"link{number:02}").symlink_to(tmp_path)

    claim(folder)

    assert renamed_warning(folder).count("link") == 10 + 1  # the word itself is in the sentence
    assert "12 files or folders" in renamed_warning(folder)


def test_a_folder_that_all_may_write_to_is_closed_to_them(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    folder.parent.chmod(0o777)

    claim(folder)

    assert (mode(folder), mode(folder.parent)) == (0o775, 0o775)


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to(path.parent.parent)])
def test_a_file_or_a_link_in_the_place_of_the_folder_is_refused_with_what_to_do(folder: Path, make: object) -> None:
    folder.parent.mkdir(parents=True)
    assert callable(make)
    make(folder)

    with pytest.raises(PermissionError, match="choose another OTEL_ML_DIR, or another id"):
        claim(folder)


def test_ones_own_folder_and_one_that_is_not_there_yet_may_hold_runs(tmp_path: Path) -> None:
    assert may_hold_ours(tmp_path)
    assert may_hold_ours(tmp_path / "not" / "yet")


def owned_by(owner: int, found: os.stat_result) -> os.stat_result:
    fields = list(found)
    fields[stat.ST_UID] = owner
    return os.stat_result(fields)


@pytest.mark.parametrize(("owner", "is_trusted"), [(0, True), (1001, True), (1002, False)])
def test_a_folder_of_root_or_of_who_owns_the_folder_above_may_hold_runs_of_another_user(
    owner: int, is_trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "experiment"
    folder.mkdir(mode=0o775)
    of_folder, of_parent = owned_by(owner, folder.lstat()), owned_by(1001, tmp_path.stat())
    with monkeypatch.context() as as_another_user:
        as_another_user.setattr(Path, "lstat", lambda path: of_folder)
        as_another_user.setattr(Path, "stat", lambda path: of_parent)
        as_another_user.setattr(os, "geteuid", lambda: 1000)

        is_held = may_hold_ours(folder)

    assert is_held == is_trusted
