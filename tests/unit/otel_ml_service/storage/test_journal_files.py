"""The files of a journal: begun, deleted, left by a service that was killed, and those of the first form."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from otel_ml.exceptions import VersionError
from otel_ml_service.storage.database import StorageError
from otel_ml_service.storage.journal import Journal
from otel_ml_service.stored_runs.read_records import identity_of, requests_after
from otel_ml_service.versions import JOURNAL
from tests.journals import first_form
from tests.unit.otel_ml_service.storage.test_journal import Receiver, append, left_in, names, started
from tests.waiting import eventually

MIB = 2**20


@contextmanager
def killed(path: Path, folder: Path) -> Iterator[Path]:
    """Copy what a service has on the disk in this moment, as a kill leaves it."""
    shutil.copytree(path.parent, folder, ignore=lambda _, found: [name for name in found if name.endswith("-shm")])
    yield folder / path.name


def left_by_the_first_form(path: Path, count: int, size: int = 10) -> None:
    """Write a journal of the first form with requests 2 to `count`; the first one is decided."""
    first_form(path, [bytes([number]) * size for number in range(1, count + 1)])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM journal WHERE id = 1")


def bodies(journal: Journal[str]) -> dict[int, bytes]:
    return {entry.id: entry.body for entry in journal.leftover()}


# How large it becomes


def test_the_disk_holds_what_is_undecided_and_one_file_more(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    largest = 0
    for _ in range(120):
        last = append(journal, bytes(MIB)).result(20)
        # What was dropped before it was stored is deleted by now, and nothing is on its way.
        largest = max(largest, sum(file.stat().st_size for file in tmp_path.glob("journal-*.log")))
        journal.drop(last - 3)
    journal.close()

    assert largest < 3 * MIB + 2 * 17 * MIB
    again = Journal(path, Receiver())
    assert list(bodies(again)) == [last - 2, last - 1, last]
    again.close()


def test_a_request_takes_its_frame_on_the_disk_and_that_one_is_decided_is_written_once(tmp_path: Path) -> None:
    journal = started(tmp_path / "journal.db", Receiver())
    frame = 25 + len(b"a request")  # docs/protocol.md §6.7

    def grown() -> int:
        """By how many bytes one more request has the file grow."""
        before = sum(file.stat().st_size for file in tmp_path.glob("journal-*.log"))
        append(journal, b"a request").result(20)
        return sum(file.stat().st_size for file in tmp_path.glob("journal-*.log")) - before

    last = append(journal, b"a request").result(20)  # with the first line of the file
    assert grown() == frame
    journal.drop(last)
    grown()  # which may bring the news
    assert [grown(), grown()] == [frame, frame]
    journal.close()


def test_what_is_all_decided_leaves_the_disk_at_once_where_it_is_much(tmp_path: Path) -> None:
    journal = started(tmp_path / "journal.db", Receiver())
    journal.drop(append(journal, b"little").result(10))
    last = append(journal, bytes(5 * MIB)).result(10)
    assert names(tmp_path)[0] == "journal-1.log"

    journal.drop(last)

    eventually(lambda: list(tmp_path.glob("journal-*.log")) == [])
    assert append(journal, b"next").result(10) == last + 1
    journal.close()


def test_a_file_of_somebody_else_that_has_the_name_by_now_is_not_deleted(tmp_path: Path) -> None:
    journal = started(tmp_path / "journal.db", Receiver())
    last = append(journal, bytes(5 * MIB)).result(10)
    log = tmp_path / "journal-1.log"
    log.unlink()
    log.write_bytes(b"of somebody else")

    journal.drop(last)
    append(journal, b"next").result(10)
    journal.close()

    assert log.read_bytes() == b"of somebody else"


def test_more_requests_than_a_system_gathers_in_a_write_are_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path, Receiver())
    stored = [append(journal, number.to_bytes(2, "big")) for number in range(1500)]
    journal.start()

    ids = [one.result(10) for one in stored]
    journal.close()

    again = Journal(path, Receiver())
    assert bodies(again) == {number: index.to_bytes(2, "big") for index, number in enumerate(ids)}
    again.close()


# What a service leaves that is killed


def test_a_killed_service_leaves_what_it_acknowledged_and_gives_no_id_twice(tmp_path: Path) -> None:
    path = tmp_path / "lived" / "journal.db"
    journal = started(path, Receiver())
    ids = [append(journal, bytes([n])).result(10) for n in range(5)]
    journal.drop(ids[1])
    eventually(lambda: journal._files._noted == ids[1])
    with killed(path, tmp_path / "killed") as left:
        assert requests_after(left, 0) == 3
        assert requests_after(left, ids[3]) == 1
        assert identity_of(left) == journal.identity
        again = started(left, Receiver())
        assert (bodies(again), again.damage) == ({number: bytes([number - 1]) for number in ids[2:]}, "")
        assert append(again, b"new").result(10) > ids[-1]
        again.close()
    assert requests_after(path, 0) == 0  # it is alive
    journal.close()


def test_what_is_dropped_with_a_request_that_came_is_not_there_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "lived" / "journal.db"
    journal = started(path, Receiver())
    done = append(journal, b"done").result(10)
    journal.close()
    journal = Journal(path, Receiver())
    stored = append(journal, b"new")
    journal.drop(done)
    journal.start()  # both are of one commit
    append(journal, b"newer").result(10)
    with killed(path, tmp_path / "killed") as left:
        assert left_in(left) == [b"new", b"newer"]
    assert stored.result(10) > done
    journal.close()


def test_the_database_is_not_written_with_each_request(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    append(journal, b"x").result(10)
    log = path.with_name("journal.db-wal")
    before = log.stat().st_size

    for _ in range(20):
        journal.drop(append(journal, b"x").result(10))

    assert log.stat().st_size == before
    journal.close()


def test_ids_of_requests_whose_file_is_gone_are_not_given_again(tmp_path: Path) -> None:
    path = tmp_path / "lived" / "journal.db"
    journal = started(path, Receiver())
    last = [append(journal, b"x").result(10) for _ in range(100)][-1]
    with killed(path, tmp_path / "killed") as left:
        for log in left.parent.glob("journal-*.log"):
            log.unlink()
        again = started(left, Receiver())
        assert again.leftover() == []
        assert append(again, b"new").result(10) > last
        again.close()
    journal.close()


@pytest.mark.parametrize(
    "end", [b"\0" * 5000, b"\xff\xfejr", b"\xff\xfejrM" + b"\0" * 300], ids=["zeros", "torn", "both"]
)
def test_a_torn_end_is_no_damage_and_nothing_is_appended_behind_it(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    append(journal, b"first").result(10)
    journal.close()
    with (tmp_path / "journal-1.log").open("ab") as file:
        file.write(end)

    again = started(path, Receiver())
    append(again, b"second").result(10)
    again.close()

    assert again.damage == ""
    assert names(tmp_path) == ["journal-1.log", "journal-2.log", "journal.db"]
    assert left_in(path) == [b"first", b"second"]


def test_files_whose_database_was_removed_keep_their_identity_and_are_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    first, last = (append(journal, body).result(10) for body in (b"first", b"last"))
    journal.close()
    path.unlink()
    log = tmp_path / "journal-1.log"
    os.truncate(log, log.stat().st_size - 1)

    again = started(path, Receiver())

    assert (bodies(again), again.identity) == ({first: b"first"}, journal.identity)
    assert append(again, b"new").result(10) > last
    again.close()


@pytest.mark.parametrize("database", ["gone", "damaged"])
def test_a_file_of_a_newer_version_whose_database_does_not_tell_is_left_as_it_is(tmp_path: Path, database: str) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    append(journal, b"x").result(10)
    journal.close()
    log = tmp_path / "journal-1.log"
    log.write_bytes(log.read_bytes().replace(b"journal %d" % JOURNAL, b"journal %d" % (JOURNAL + 1), 1))
    path.unlink() if database == "gone" else path.write_bytes(b"garbage" * 1000)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}

    with pytest.raises(VersionError, match=f"journal-1.log' was written .* in version {JOURNAL + 1} of its form"):
        Journal(path, Receiver())

    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_a_folder_that_somebody_has_opened_to_others_is_closed_again_with_the_next_file(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    journal = started(path, Receiver())
    path.parent.chmod(0o755)

    append(journal, b"x").result(10)

    assert path.parent.stat().st_mode & 0o777 == 0o700
    journal.close()


def test_what_is_planted_under_the_name_of_the_next_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"the only copy")
    path = tmp_path / "state" / "journal.db"
    started(path, Receiver()).close()
    (path.parent / "journal-1.log").symlink_to(precious)
    (path.parent / "journal-2.log").mkdir()

    journal = started(path, Receiver())
    append(journal, b"x").result(10)
    journal.close()

    assert precious.read_bytes() == b"the only copy"
    assert (path.parent / "journal-1.log").is_symlink()
    assert left_in(path) == [b"x"]


# The first form


def test_requests_of_the_first_form_are_taken_up_under_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    left_by_the_first_form(path, 40, size=100_000)
    assert requests_after(path, 2) == 38

    journal = started(path, Receiver())

    assert journal.identity == "abc"
    assert bodies(journal) == {number: bytes([number]) * 100_000 for number in range(2, 41)}
    assert append(journal, b"new").result(10) == 41
    journal.drop(39)
    journal.close()
    assert path.stat().st_size < 100_000
    assert left_in(path) == [bytes([40]) * 100_000, b"new"]
    assert requests_after(path, 0) == 2


def test_ids_of_the_first_form_are_not_given_again_though_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    left_by_the_first_form(path, 1)

    journal = started(path, Receiver())

    assert append(journal, b"new").result(10) == 2
    journal.close()


def test_ids_of_the_first_form_are_not_given_again_though_a_kill_and_a_person_took_the_files(tmp_path: Path) -> None:
    path = tmp_path / "lived" / "journal.db"
    path.parent.mkdir()
    left_by_the_first_form(path, 3)
    journal = started(path, Receiver())  # which has appended nothing yet
    with killed(path, tmp_path / "killed") as left:
        for log in left.parent.glob("journal-*.log"):
            log.unlink()
        again = started(left, Receiver())
        assert append(again, b"new").result(10) == 4
        again.close()
    journal.close()


def test_a_service_that_is_killed_while_it_takes_up_the_first_form_takes_nothing_up_twice(tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    path.parent.mkdir()
    left_by_the_first_form(path, 3)
    shutil.copytree(path.parent, tmp_path / "killed")
    journal = started(path, Receiver())
    shutil.copy(path.parent / "journal-1.log", tmp_path / "killed")  # written, and the database as it was
    journal.close()

    left = tmp_path / "killed" / "journal.db"
    assert requests_after(left, 0) == 2
    assert left_in(left) == [b"\x02" * 10, b"\x03" * 10]


def test_what_can_be_read_of_a_damaged_journal_of_the_first_form_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    left_by_the_first_form(path, 200, size=1500)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xa5" * 8192)

    journal = started(path, Receiver())

    left = bodies(journal)
    assert len(left) >= 150
    assert all(body == bytes([number]) * 1500 for number, body in left.items())
    assert "journal.db.damaged-1" in journal.damage
    assert append(journal, b"new").result(10) > max(left)
    journal.close()


@pytest.mark.parametrize("is_begun", [False, True], ids=["before", "in the middle"])
def test_a_journal_of_the_first_form_of_which_only_writing_shows_the_damage_is_repaired(
    tmp_path: Path, is_begun: bool
) -> None:
    path = tmp_path / "journal.db"
    left_by_the_first_form(path, 200, size=1500)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if is_begun:  # by a service that was killed
            connection.execute("CREATE TABLE ids (last INTEGER NOT NULL, dropped INTEGER NOT NULL)")
        connection.execute("DELETE FROM journal WHERE id < 200")
    with path.open("r+b") as file:
        file.seek(32)  # of SQLite's header: the first page of the list of free ones
        page = int.from_bytes(file.read(4), "big")
        assert page
        file.seek((page - 1) * 4096)
        file.write(b"\xa5" * 4096)

    if is_begun:
        with pytest.raises(StorageError, match="not a readable otel_ml database"):
            Journal(path, Receiver())

    again = started(path, Receiver())
    assert list(bodies(again)) == [200]
    assert append(again, b"x" * 100_000).result(10) > 200
    again.close()
