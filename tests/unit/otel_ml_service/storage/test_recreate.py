"""Databases of a service whose files others delete, move or replace while they are open."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml_exporters import Summary
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.journal import Journal
from otel_ml_service.storage.outbox import Commit, Outbox
from tests.unit.otel_ml_service.storage.test_journal import Receiver, append, left_in, started
from tests.waiting import eventually


def deleted(path: Path) -> None:
    shutil.rmtree(path.parent)


def moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replaced(path: Path) -> None:
    for file in [*path.parent.glob(f"{path.name}-*"), *path.parent.glob("journal-*.log")]:
        file.unlink()
    path.unlink()
    path.write_bytes(b"of somebody else")


HARM = pytest.mark.parametrize("harm", [deleted, moved, replaced])


@HARM
def test_an_outbox_that_lost_its_file_is_written_anew_with_all_it_holds(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = tmp_path / "state" / "run.db"
    outbox = Outbox(path)
    outbox.commit(Commit([Summary(1, 1.0, {"x": 1.0})], {"a": b"1"}, ("journal-1", 7), ["Said."], {"fact": "yes"}))
    outbox.set_mark("jsonl", Mark(1, {"too large": 1}))

    assert outbox.is_intact
    harm(path)
    assert not outbox.is_intact
    outbox.write_anew()
    assert outbox.is_intact
    outbox.commit(Commit([Summary(2, 2.0, {"x": 2.0})], {"b": b"2"}))
    outbox.close()

    again = Outbox(path)
    assert [record.seq for record in again.read(0, 10)] == [1, 2]
    assert again.state() == {"a": b"1", "b": b"2"}
    assert (again.consumed, again.notices, again.facts["fact"]) == (("journal-1", 7), ["Said."], "yes")
    assert again.mark("jsonl") == Mark(1, {"too large": 1})
    again.close()
    kept = path.with_name("run.db.replaced")
    assert (kept.read_bytes() if kept.exists() else b"of somebody else") == b"of somebody else"


def test_an_outbox_that_cannot_be_written_anew_goes_on_with_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "state" / "run.db"
    outbox = Outbox(path)
    outbox.commit(Commit([Summary(1, 1.0, {"x": 1.0})]))
    deleted(path)
    path.parent.write_text("a file where a folder has to be")

    with pytest.raises(StorageError):
        outbox.write_anew()
    outbox.commit(Commit([Summary(2, 2.0, {"x": 2.0})]))
    path.parent.unlink()
    outbox.write_anew()
    outbox.close()

    again = Outbox(path)
    assert [record.seq for record in again.read(0, 10)] == [1, 2]
    again.close()


@HARM
def test_what_a_journal_acknowledges_is_under_its_name(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = tmp_path / "state" / "journal.db"
    receiver = Receiver()
    journal = Journal(path, receiver)
    journal.start()
    append(journal, b"first").result(10)
    harm(path)
    append(journal, b"second").result(10)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    shutil.copytree(path.parent, tmp_path / "killed")
    identity = journal.identity
    journal.close()

    for left in (path, tmp_path / "killed" / path.name):
        again = Journal(left, receiver)
        assert [entry.body for entry in again.leftover()] == [b"first", b"second"]
        assert again.identity == identity
        again.close()


def cut(path: Path) -> None:
    for file in path.parent.glob("journal-*.log"):
        os.truncate(file, file.stat().st_size - 1)


def without_requests(path: Path) -> None:
    for file in path.parent.glob("journal-*.log"):
        file.unlink()


@pytest.mark.parametrize("harm", [deleted, moved, replaced, without_requests])
@pytest.mark.parametrize("is_leftover", [False, True], ids=["its own", "of a predecessor"])
def test_what_a_journal_acknowledged_is_under_its_name_though_nothing_came_before_it_closed(
    tmp_path: Path, harm: Callable[[Path], None], is_leftover: bool
) -> None:
    path = tmp_path / "state" / "journal.db"
    journal = started(path, Receiver())
    done = append(journal, b"done").result(10)
    append(journal, b"acknowledged").result(10)
    journal.drop(done)
    if is_leftover:
        journal.close()
        journal = started(path, Receiver())
    eventually(lambda: journal._files.dropped == done)
    harm(path)
    journal.close()

    assert left_in(path) == [b"acknowledged"]


def test_behind_a_file_that_somebody_has_cut_nothing_is_appended_and_what_is_whole_stays(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    journal = started(path, Receiver())
    append(journal, b"whole").result(10)
    append(journal, b"cut").result(10)
    cut(path)
    append(journal, b"after").result(10)
    journal.close()

    again = Journal(path, Receiver())
    assert ([entry.body for entry in again.leftover()], again.damage) == ([b"whole", b"after"], "")
    again.close()


def test_a_journal_that_cannot_be_written_anew_refuses_and_has_everything_once_it_can(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    journal = started(path, Receiver())
    append(journal, b"first").result(10)
    deleted(path)
    path.parent.write_text("a file where a folder has to be")

    with pytest.raises(StorageError):
        append(journal, b"refused").result(10)
    path.parent.unlink()
    append(journal, b"second").result(10)
    journal.close()

    assert left_in(path) == [b"first", b"second"]
