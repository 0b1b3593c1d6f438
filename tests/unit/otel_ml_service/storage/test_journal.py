from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

import pytest

from otel_ml.wire.versions import own_version
from otel_ml_service.storage.database import StorageError, open_database
from otel_ml_service.storage.journal import Entry, Journal


class Receiver:
    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []

    def __call__(self, entries: Sequence[tuple[int, str]]) -> None:
        self.entries.extend(entries)


def append(journal: Journal[str], body: bytes, payload: str = "") -> Future[int]:
    found: Future[int] = Future()

    def done(result: int | StorageError) -> None:
        if isinstance(result, StorageError):
            found.set_exception(result)
        else:
            found.set_result(result)

    journal.append("metrics", body, payload, done)
    return found


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


def test_a_disk_that_refuses_fails_the_append_and_not_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    receiver = Receiver()
    journal = started(path, receiver)
    journal._connection.execute("PRAGMA max_page_count=10")

    with pytest.raises(StorageError, match="No space left"):
        append(journal, b"x" * 1_000_000, "large").result(10)
    append(journal, b"small", "small").result(10)
    journal.close()

    assert [payload for _, payload in receiver.entries] == ["small"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT body FROM journal").fetchall() == [(b"small",)]


def test_what_is_done_is_deleted_though_what_came_with_it_found_no_room(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    done = append(journal, b"x").result(10)
    journal.close()
    again = Journal(path, Receiver())
    again._connection.execute("PRAGMA max_page_count=10")
    refused = append(again, b"x" * 1_000_000)
    again.drop(done)
    again.start()  # both are of one commit
    with pytest.raises(StorageError, match="No space left"):
        refused.result(10)
    again.close()

    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT id FROM journal").fetchall() == []


def test_whoever_is_done_with_less_takes_nothing_back_of_what_is_done(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    ids = [append(journal, b"x").result(10) for _ in range(3)]
    journal.close()
    again = Journal(path, Receiver())
    again.drop(ids[1])
    again.drop(ids[0])
    again.start()
    again.close()

    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT id FROM journal").fetchall() == [(ids[2],)]


def test_a_journal_that_may_not_delete_what_is_done_closes_all_the_same_and_has_it_yet(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    kept = append(journal, b"x").result(10)
    journal._connection.execute("PRAGMA query_only=1")

    journal.drop(kept)
    closing_it = threading.Thread(target=journal.close, daemon=True)
    closing_it.start()
    closing_it.join(30)

    assert not closing_it.is_alive()
    again = started(path, Receiver())
    assert [entry.id for entry in again.leftover()] == [kept]
    again.close()


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.95])
def test_of_a_journal_that_is_damaged_in_the_middle_the_rest_is_taken_up(tmp_path: Path, place: float) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    last = [append(journal, bytes([n]) * 1500) for n in range(200)][-1].result(10)
    journal.close()
    with path.open("r+b") as file:
        file.seek(int(path.stat().st_size * place) // 4096 * 4096)
        file.write(b"\xa5" * 8192)

    again = started(path, Receiver())

    bodies = [entry.body for entry in again.leftover()]
    assert len(bodies) >= 150
    assert set(bodies) <= {bytes([n]) * 1500 for n in range(200)}
    assert "damaged-1" in again.damage
    assert append(again, b"new").result(10) > last - 50
    again.close()


def test_a_journal_of_which_only_writing_shows_the_damage_is_repaired_by_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    last = [append(journal, bytes([n]) * 1500) for n in range(200)][-1].result(10)
    journal.drop(last)
    kept = append(journal, b"kept").result(10)
    journal.close()
    with path.open("r+b") as file:
        file.seek(32)  # of SQLite's header: the first page of the list of free ones
        page = int.from_bytes(file.read(4), "big")
        assert page
        file.seek((page - 1) * 4096)
        file.write(b"\xa5" * 4096)

    damaged = started(path, Receiver())
    assert [entry.id for entry in damaged.leftover()] == [kept]
    with pytest.raises(StorageError, match=r"damaged|readable"):
        append(damaged, b"x" * 100_000).result(10)
    damaged.close()

    again = started(path, Receiver())
    assert [entry.id for entry in again.leftover()] == [kept]
    assert append(again, b"x" * 100_000).result(10) > kept
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

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM journal").fetchone() == (0,)


def test_a_journal_of_an_older_form_says_this_one_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    started(path, Receiver()).close()
    with closing(sqlite3.connect(path)) as connection:
        current = connection.execute("PRAGMA user_version").fetchone()
        connection.execute("PRAGMA user_version = 0")

    started(path, Receiver()).close()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == current


def test_a_journal_that_ends_empty_gives_its_room_back_and_goes_on_counting(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = started(path, Receiver())
    last = [append(journal, bytes(100_000)) for _ in range(40)][-1].result(10)
    journal.drop(last)
    journal.close()
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
