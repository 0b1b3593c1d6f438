from __future__ import annotations

import errno
import os
import sqlite3
import stat
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from otel_ml.wire.versions import own_version
from otel_ml_service.storage.database import StorageError, open_database
from otel_ml_service.storage.journal import Committed, Entry, Journal
from otel_ml_service.storage.journal_frames import Place


class Receiver:
    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []
        self.committed: list[Committed[str]] = []

    def __call__(self, entries: Sequence[Committed[str]]) -> None:
        self.entries.extend((one.id, one.payload) for one in entries)
        self.committed.extend(entries)


def append(journal: Journal[str], body: bytes, payload: str = "") -> Future[int]:
    found: Future[int] = Future()

    def done(result: int | StorageError) -> None:
        if isinstance(result, StorageError):
            found.set_exception(result)
        else:
            found.set_result(result)

    journal.append("metrics", body, payload, done)
    return found


def left_in(path: Path) -> list[bytes]:
    """Return the requests that a journal has that nobody has open."""
    journal: Journal[str] = Journal(path, Receiver())
    left = [entry.body for entry in journal.leftover()]
    journal.close()
    return left


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def started(path: Path, receiver: Receiver) -> Journal[str]:
    journal = Journal(path, receiver)
    journal.start()
    return journal


def test_what_was_acknowledged_and_not_dropped_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    journal = started(path, Receiver())
    ids = [append(journal, bytes([n]), f"payload {n}").result(10) for n in range(5)]
    journal.drop(ids[2])
    journal.close()

    again = Journal(path, Receiver())

    assert again.leftover() == [Entry(ids[3], "metrics", b"\x03"), Entry(ids[4], "metrics", b"\x04")]
    again.close()


def test_payloads_are_handed_on_in_the_order_of_their_numbers_before_they_are_acknowledged(tmp_path: Path) -> None:
    receiver = Receiver()
    journal = started(tmp_path / "journal.db", receiver)
    futures = [append(journal, b"x", str(n)) for n in range(1000)]

    ids = [future.result(30) for future in futures]
    journal.close()

    assert receiver.entries == [(number, str(n)) for n, number in enumerate(ids)]
    assert ids == sorted(set(ids))


def open_files(folder: Path) -> list[str]:
    """Return what this process has open below a folder."""
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sorted(link.name for link in links if folder in link.parents)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_journal_that_is_closed_or_cannot_be_opened_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    for body in (b"x", bytes(17 * 2**20), b"y"):  # files of several requests are no larger
        append(journal, body).result(30)
    assert {"journal-1.log", "journal-2.log"} <= {*open_files(tmp_path)}
    journal.close()
    assert open_files(tmp_path) == []

    opened = os.open
    with monkeypatch.context() as limited:
        limited.setattr(os, "open", lambda name, *rest: no_more() if "journal-2" in str(name) else opened(name, *rest))
        with pytest.raises(StorageError, match="as many files open as it may"):
            Journal(path, Receiver())
    assert open_files(tmp_path) == []


def no_more() -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_the_bytes_of_a_request_can_be_read_again_until_it_is_dropped(tmp_path: Path) -> None:
    receiver = Receiver()
    journal = started(tmp_path / "journal.db", receiver)
    bodies = [bytes([n]) * n * 100 for n in range(1, 60)]
    for future in [append(journal, body) for body in bodies]:
        future.result(30)
    journal.drop(20)
    append(journal, b"the last").result(10)  # behind a note of what is dropped

    assert [journal.body(one.id, one.place) for one in receiver.committed] == [*bodies, b"the last"]
    other = replace(receiver.committed[7], id=9)
    damaged = receiver.committed[30]
    with damaged.place.path.open("r+b") as file:
        file.seek(damaged.place.begin + 100)
        file.write(b"?")
    gone = replace(receiver.committed[8], place=Place(tmp_path / "journal-7.log", 0))
    for one in (other, damaged, gone):
        with pytest.raises(OSError, match=r"journal"):
            journal.body(one.id, one.place)
    journal.close()


def test_a_number_does_not_come_back_after_everything_was_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    last = append(journal, b"x").result(10)
    journal.drop(last)
    journal.close()

    again = started(path, Receiver())

    assert again.leftover() == []
    assert append(again, b"x").result(10) > last
    again.close()


def test_only_its_owner_can_read_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    journal = started(path, Receiver())
    append(journal, b"x").result(10)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    journal.close()

    assert modes == dict.fromkeys(modes, 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_is_no_database_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"this is not SQLite" * 100)

    with pytest.raises(StorageError, match=r"journal.db' is not a readable otel_ml database .* Move it away"):
        open_database(path, "")


def test_a_second_service_on_the_same_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first = started(path, Receiver())

    with pytest.raises(StorageError, match="in use by another otel_ml service"):
        Journal(path, Receiver())
    first.close()


def test_after_closing_an_append_fails_and_closing_again_is_fine(tmp_path: Path) -> None:
    journal = started(tmp_path / "journal.db", Receiver())
    journal.close()
    journal.close()

    with pytest.raises(StorageError, match="stopping"):
        append(journal, b"x").result(10)


@pytest.mark.parametrize("place", [0.0, 0.02, 0.3, 0.6, 0.95])
def test_of_a_file_that_is_damaged_in_the_middle_the_rest_is_taken_up(tmp_path: Path, place: float) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    last = [append(journal, bytes([n]) * 1500) for n in range(200)][-1].result(10)
    journal.close()
    log = tmp_path / "journal-1.log"
    harmed = bytearray(log.read_bytes())
    at = int(len(harmed) * place)
    harmed[at : at + 8192] = b"\xa5" * 8192
    log.write_bytes(harmed)

    again = started(path, Receiver())

    bodies = [entry.body for entry in again.leftover()]
    assert len(bodies) >= 193
    assert set(bodies) <= {bytes([n]) * 1500 for n in range(200)}
    assert again.damage.startswith(f"The journal was damaged: {len(bodies)} requests could be read and are taken up")
    kept = tmp_path / "journal-1.log.damaged-1"
    assert str(kept) in again.damage
    assert kept.read_bytes() == harmed
    assert append(again, b"new").result(10) > last
    again.close()
    assert left_in(path) == [*bodies, b"new"]
    assert Journal(path, Receiver()).damage == ""


@pytest.mark.parametrize("page", [0, 1, 2, 3])
def test_a_database_that_is_damaged_costs_no_request_and_gives_no_id_twice(tmp_path: Path, page: int) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    ids = [append(journal, bytes([n])).result(10) for n in range(5)]
    journal.drop(ids[1])
    journal.close()
    with path.open("r+b") as file:
        file.seek(page * 4096)
        file.write(b"\xa5" * 4096)

    again = started(path, Receiver())

    assert [entry.id for entry in again.leftover()][-3:] == ids[2:]
    assert again.identity == journal.identity  # runs know what they have of it
    assert append(again, b"new").result(10) > ids[-1]
    again.close()


def test_of_a_journal_that_is_no_database_any_more_nothing_is_taken_up_and_a_new_one_begins(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"garbage" * 1000)

    journal = started(path, Receiver())

    assert journal.leftover() == []
    assert append(journal, b"x").result(10) == 1
    journal.close()
    assert (tmp_path / "journal.db.damaged-1").read_bytes() == b"garbage" * 1000


def test_of_many_requests_at_once_each_is_stored_under_the_id_that_was_acknowledged(tmp_path: Path) -> None:
    receiver = Receiver()
    journal = Journal(tmp_path / "journal.db", receiver)
    bodies = [number.to_bytes(2, "big") * (300_000 if number % 7 == 0 else 1) for number in range(100)]
    appended = [append(journal, body, str(number)) for number, body in enumerate(bodies)]  # one commit, once it starts
    journal.start()
    ids = [one.result(10) for one in appended]
    journal.drop(ids[49])
    journal.close()

    again = Journal(tmp_path / "journal.db", Receiver())
    left = {entry.id: entry.body for entry in again.leftover()}
    again.close()
    assert receiver.entries == [(number, str(index)) for index, number in enumerate(ids)]
    assert left == dict(zip(ids[50:], bodies[50:], strict=True))


def test_ids_go_on_where_they_ended_when_nothing_is_left(tmp_path: Path) -> None:
    journal = started(tmp_path / "journal.db", Receiver())
    first = [append(journal, b"body").result(10) for _ in range(3)]
    journal.drop(first[-1])
    journal.close()

    again = started(tmp_path / "journal.db", Receiver())
    second = [append(again, b"body").result(10) for _ in range(3)]
    again.close()
    assert first + second == list(range(first[0], first[0] + 6))


def test_a_new_journal_says_which_otel_ml_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    started(path, Receiver()).close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM writer").fetchall() == [(own_version(),)]
        assert connection.execute("PRAGMA user_version").fetchone() != (0,)


def test_the_first_entry_alone_can_be_dropped_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    first = append(journal, b"x").result(10)
    journal.close()

    again = started(path, Receiver())
    assert [entry.id for entry in again.leftover()] == [first]
    again.drop(first)
    again.close()

    assert left_in(path) == []


def test_a_journal_of_an_older_form_says_this_one_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    started(path, Receiver()).close()
    with closing(sqlite3.connect(path)) as connection:
        current = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("PRAGMA user_version = 0")

    started(path, Receiver()).close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == current


def test_a_journal_that_ends_empty_leaves_no_file_of_requests_and_goes_on_counting(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    last = [append(journal, bytes(100_000)) for _ in range(40)][-1].result(10)
    journal.drop(last)
    journal.close()
    assert names(tmp_path) == ["journal.db"]
    assert path.stat().st_size < 100_000

    again = started(path, Receiver())
    assert append(again, b"1").result(10) == last + 1
    again.close()


def test_a_journal_that_is_left_with_requests_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    ids = [append(journal, bytes(100_000)).result(10) for _ in range(40)]
    journal.drop(ids[-2])
    journal.close()

    again = Journal(path, Receiver())
    assert [entry.id for entry in again.leftover()] == [ids[-1]]
    again.close()
