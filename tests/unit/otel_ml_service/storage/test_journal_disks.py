"""A journal whose disk is full, refuses, or does not sync: what is not there is not acknowledged, and it goes on."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from otel_ml_service.storage.database import NoSpaceError, StorageError
from otel_ml_service.storage.journal import Journal
from tests.full_disk import no_file_larger_than
from tests.unit.otel_ml_service.storage.test_journal import Receiver, append, left_in, names, started
from tests.waiting import eventually


def fails(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def room_for(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let a gathered write that is larger than `size` end there, as on a disk that is full by then."""
    writev, write = os.writev, os.write

    def gathered(handle: int, parts: Sequence[bytes]) -> int:
        whole = b"".join(parts)
        return writev(handle, parts) if len(whole) <= size else write(handle, whole[:size])

    def no_room(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", gathered)
    monkeypatch.setattr(os, "write", no_room)


def test_a_disk_that_refuses_fails_the_append_and_not_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    receiver = Receiver()
    journal = started(path, receiver)
    append(journal, b"before", "before").result(10)
    room_for(monkeypatch, 1_000)

    with pytest.raises(NoSpaceError, match=r"journal-1.log' cannot be written to: No space left"):
        append(journal, b"x" * 1_000_000, "large").result(10)
    append(journal, b"small", "small").result(10)
    journal.close()

    assert [payload for _, payload in receiver.entries] == ["before", "small"]
    assert left_in(path) == [b"before", b"small"]


def test_a_limit_of_the_size_of_files_is_no_fault_of_their_permissions(tmp_path: Path) -> None:
    journal = started(tmp_path / "journal.db", Receiver())

    with no_file_larger_than(100_000), pytest.raises(NoSpaceError, match=r"File too large\. Allow larger .*ulimit -f"):
        append(journal, b"x" * 1_000_000, "large").result(10)
    append(journal, b"x" * 1_000_000, "later").result(10)
    journal.close()


@pytest.mark.parametrize("can_be_cut", [True, False], ids=["cut", "not even cut"])
def test_what_a_disk_has_not_synced_is_not_acknowledged_and_what_comes_next_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_be_cut: bool
) -> None:
    path = tmp_path / "journal.db"
    receiver = Receiver()
    journal = started(path, receiver)
    before = append(journal, b"before", "before").result(10)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fails)
        if not can_be_cut:
            broken.setattr(os, "ftruncate", fails)
        with pytest.raises(StorageError, match="Input/output error"):
            append(journal, b"refused", "refused").result(10)
    after = append(journal, b"after", "after").result(10)
    assert (tmp_path / "journal-2.log").exists()  # a kernel says once that it has lost something
    journal.close()

    assert receiver.entries == [(before, "before"), (after, "after")]
    again = Journal(path, Receiver())
    kept = {entry.id: entry.body for entry in again.leftover()}
    again.close()
    assert (kept[before], kept[after]) == (b"before", b"after")
    assert set(kept.values()) == {b"before", b"after"} | (set() if can_be_cut else {b"refused"})
    assert again.damage == ""


def test_behind_half_a_request_that_cannot_be_cut_off_nothing_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    append(journal, b"before").result(10)
    with monkeypatch.context() as broken:
        room_for(broken, 1_000)
        broken.setattr(os, "ftruncate", fails)
        with pytest.raises(StorageError, match="No space left"):
            append(journal, b"x" * 1_000_000).result(10)
    append(journal, b"after").result(10)
    journal.close()

    again = Journal(path, Receiver())
    assert ([entry.body for entry in again.leftover()], again.damage) == ([b"before", b"after"], "")
    again.close()


@pytest.mark.parametrize(("number", "is_taken"), [(errno.EIO, False), (errno.EINVAL, True)])
def test_nothing_is_acknowledged_in_a_new_file_before_its_folder_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_taken: bool
) -> None:
    """Where the file system can: one that cannot says that the argument is invalid."""

    def refused(_: int) -> NoReturn:
        raise OSError(number, os.strerror(number))

    journal = started(tmp_path / "journal.db", Receiver())
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refused)
        stored = append(journal, b"x")
        assert (stored.exception(10) is None) == is_taken
    assert (tmp_path / "journal-1.log").exists() == is_taken
    append(journal, b"x").result(10)
    journal.close()


def test_what_is_done_is_deleted_though_what_came_with_it_found_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    done = append(journal, b"x").result(10)
    journal.close()
    again = Journal(path, Receiver())
    room_for(monkeypatch, 1_000)
    refused = append(again, b"x" * 1_000_000)
    again.drop(done)
    again.start()  # both are of one commit
    with pytest.raises(StorageError, match="No space left"):
        refused.result(10)
    again.close()

    assert left_in(path) == []
    assert names(tmp_path) == ["journal.db"]


def test_whoever_is_done_with_less_takes_nothing_back_of_what_is_done(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    ids = [append(journal, bytes([n])).result(10) for n in range(3)]
    journal.close()
    again = Journal(path, Receiver())
    again.drop(ids[1])
    again.drop(ids[0])
    again.start()
    again.close()

    assert left_in(path) == [b"\x02"]


def test_a_journal_that_may_not_delete_what_is_done_closes_all_the_same_and_the_next_one_deletes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    done = append(journal, b"x").result(10)
    with monkeypatch.context() as refused:
        refused.setattr(Path, "unlink", fails)
        journal.drop(done)
        closing_it = threading.Thread(target=journal.close, daemon=True)
        closing_it.start()
        closing_it.join(30)

    assert not closing_it.is_alive()
    assert names(tmp_path) == ["journal-1.log", "journal.db"]
    again = started(path, Receiver())
    assert again.leftover() == []
    assert names(tmp_path) == ["journal.db", "journal.db-wal"]
    again.close()


def test_a_journal_that_cannot_note_its_end_gives_no_id_twice(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    last = append(journal, b"x").result(10)
    journal.drop(last)
    eventually(lambda: journal._files.dropped == last)
    journal._database._connection.execute("PRAGMA query_only=1")
    journal.close()

    again = started(path, Receiver())
    assert append(again, b"x").result(10) > last
    again.close()
