from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml.wire.rendezvous import rendezvous_of
from otel_ml_exporters.records import RunInfo
from otel_ml_service.live_runs.state_files import keep_meeting_place, keep_name, meeting_place, write_whole


def info(folder: Path, name: str = "big", notes: str | None = None) -> RunInfo:
    return RunInfo(id="exp", experiment="digits", name=name, dir=folder, started_at=0.0, notes=notes)


def test_a_file_is_written_whole_in_the_place_of_the_one_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "name"
    for content in (b"a longer one", b"short"):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["name"]


def test_a_run_is_called_what_it_was_called_last(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    keep_name(info(tmp_path))
    without = sorted(file.name for file in state.iterdir())
    keep_name(info(tmp_path, "größer", "two\nlines"))
    keep_name(info(tmp_path, ""))

    assert without == ["name"]
    assert (state / "name").read_text(encoding="utf-8") == "größer"
    assert (state / "notes").read_text(encoding="utf-8") == "two\nlines"


def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    keep_name(info(tmp_path / "none"))
    keep_meeting_place(tmp_path / "none", tmp_path)

    assert not (tmp_path / "none").exists()


def test_where_a_runs_processes_meet_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = tmp_path / "otel-ml"
    folder = runtime / "abc"
    folder.mkdir(parents=True, mode=0o700)
    runtime.chmod(0o700)
    monkeypatch.chdir(runtime)
    keep_meeting_place(tmp_path, Path("abc"))

    assert meeting_place(tmp_path, "exp").folder == folder


@pytest.mark.parametrize("how", ["gone", "open to others", "relative", "no file"])
def test_a_place_that_anybody_may_have_written_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    folder = tmp_path / "otel-ml" / "abc"
    folder.mkdir(parents=True, mode=0o700)
    keep_meeting_place(tmp_path, folder)
    if how == "gone":
        folder.rmdir()
    elif how == "open to others":
        folder.parent.chmod(0o777)
    elif how == "relative":
        monkeypatch.chdir(tmp_path)
        (tmp_path / "rendezvous").write_text("otel-ml/abc")
    else:
        (tmp_path / "rendezvous").unlink()

    assert meeting_place(tmp_path, "exp") == rendezvous_of("exp")
