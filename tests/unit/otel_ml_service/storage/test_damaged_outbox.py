from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from otel_ml_exporters import Summary, Text
from otel_ml_service.storage import salvage
from otel_ml_service.storage.database import DamagedError, NoSpaceError, StorageError
from otel_ml_service.storage.exporter_marks import Mark
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.storage.salvaged_records import UNREADABLE
from tests.full_disk import no_file_larger_than

RECORDS = [Text(seq, float(seq), f"note {seq}", None, None, f"{seq} " * 300) for seq in range(1, 201)]
STATE = {"run": b"the engine", **{f"unit/{n}": bytes([n]) * 2000 for n in range(50)}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a run that was put away: `jsonl` has half of it."""
    path = tmp_path / "state" / "run.db"
    outbox = Outbox(path)
    outbox.commit(Commit(RECORDS[:100], {"run": b"earlier"}, ("j", 3), ["Rank 3 is quiet."]))
    outbox.set_mark("jsonl", Mark(100, {"too large": 1}))
    outbox.commit(Commit(RECORDS[100:], STATE, ("j", 7), facts={"late.otlp": "12"}))
    outbox.close()
    return path


def overwrite(path: Path, page: int, pages: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(4096 * page)
        file.write(b"\xa5" * 4096 * pages)


def root_page(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0])


@pytest.mark.parametrize("table", ["notices", "dictionaries"])
def test_of_a_damaged_file_everything_that_can_be_read_goes_on_in_a_new_one(path: Path, table: str) -> None:
    overwrite(path, root_page(path, table) - 1)

    outbox = Outbox(path)

    assert outbox.read(0, 1000) == RECORDS
    assert outbox.state() == STATE
    assert outbox.mark("jsonl") == Mark(100, {"too large": 1})
    assert (outbox.consumed, outbox.facts["late.otlp"], outbox.base) == (("j", 7), "12", 0)
    assert "200 records could be read" in outbox.damage
    assert (path.parent / "run.db.damaged-1").exists()
    outbox.close()
    assert Outbox(path).damage == ""


def test_a_closed_step_that_cannot_be_read_costs_no_more_than_itself(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    outbox = Outbox(path)
    outbox.commit(Commit(RECORDS, STATE | {"disk/points/1/0": b"one", "disk/points/2/0": b"two"}))
    outbox.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE engine SET value = x'00' WHERE key = 'disk/points/1/0'")
    overwrite(path, root_page(path, "notices") - 1)

    outbox = Outbox(path)

    assert outbox.damage
    assert outbox.state() == STATE
    assert (outbox.entry("disk/points/1/0"), outbox.entry("disk/points/2/0"), outbox.base) == (None, b"two", 0)
    outbox.close()


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_wherever_it_is_damaged_nothing_wrong_is_read_and_what_an_exporter_misses_is_counted(
    path: Path, place: float
) -> None:
    overwrite(path, int(path.stat().st_size / 4096 * place), 2)

    outbox = Outbox(path)
    with suppress(DamagedError):  # it may be found at the start, or when the place is read
        outbox.read(0, 1000)
        outbox.state()
    outbox.close()

    outbox = Outbox(path)
    read = outbox.read(0, 1000)

    assert [record for record in RECORDS if record in read] == read
    missing = len(RECORDS[100:]) - sum(record.seq > 100 for record in read)
    assert outbox.mark("jsonl").lost.get(UNREADABLE, 0) == (missing if outbox.mark("jsonl").seq else 0)
    assert outbox.state() in (STATE, {})
    assert (outbox.base > 200) == (not outbox.state())
    outbox.close()


def test_a_record_that_cannot_be_read_is_an_error_and_the_next_start_goes_on_without_it(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE records SET record = 'garbage' WHERE seq = 150")
    outbox = Outbox(path)
    with pytest.raises(DamagedError, match="a record cannot be read"):
        outbox.read(0, 1000)
    outbox.close()

    again = Outbox(path)

    assert again.read(0, 1000) == [record for record in RECORDS if record.seq != 150]
    assert again.mark("jsonl").lost == {"too large": 1, UNREADABLE: 1}
    assert "1 that an exporter had not written could not" in again.damage
    again.close()


def test_of_a_file_that_is_no_database_nothing_is_left_and_numbers_go_on_far_above(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)

    outbox = Outbox(path)

    assert (outbox.read(0, 10), outbox.state(), outbox.last_seq) == ([], {}, 0)
    assert outbox.base > 1_000_000_000
    assert f"numbered from {outbox.base + 1} on" in outbox.damage
    assert (path.parent / "run.db.damaged-1").read_bytes() == b"garbage" * 1000
    outbox.close()


class Killed(BaseException):
    """Where the process dies; nothing of ours catches it."""


@pytest.mark.parametrize("call", [1, 2])
def test_killed_at_any_rename_of_the_rescue_the_next_start_finishes_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    overwrite(path, root_page(path, "notices") - 1)
    salvage.suspect(path)
    calls = 0
    rename = Path.rename

    def dying(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", dying)
    with suppress(Killed):
        Outbox(path).close()
    monkeypatch.undo()

    outbox = Outbox(path)

    assert outbox.read(0, 1000) == RECORDS
    assert outbox.state() == STATE
    assert (call > 1) <= ("run.db was damaged" in outbox.damage)
    outbox.close()
    assert not salvage.is_suspect(path)
    assert {found.name for found in path.parent.iterdir()} == {"run.db", "run.db.damaged-1"}


def test_a_run_that_lost_its_memory_and_is_killed_before_its_first_commit_still_numbers_far_above(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)
    Outbox(path).close()

    again = Outbox(path)

    assert again.damage == ""
    assert again.base > 1_000_000_000
    again.close()


def test_without_room_for_a_new_file_the_damaged_one_stays_for_the_next_try(path: Path) -> None:
    overwrite(path, root_page(path, "notices") - 1)

    with no_file_larger_than(20_000), pytest.raises(StorageError):
        Outbox(path)
    outbox = Outbox(path)

    assert outbox.read(0, 1000) == RECORDS
    outbox.close()


def test_a_full_disk_is_told_from_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    outbox = Outbox(tmp_path / "run.db")
    outbox._connection.execute("PRAGMA max_page_count=12")

    with pytest.raises(NoSpaceError, match="No space left"):
        outbox.commit(Commit((), {"state": b"x" * 1_000_000}))
    outbox.close()
    with pytest.raises(StorageError, match="Cannot") as caught:
        Outbox(tmp_path / "folder")
    assert not isinstance(caught.value, NoSpaceError)


def test_a_limit_of_the_size_of_files_is_told_as_such_and_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "run.db")
    outbox.commit(Commit([Summary(1, 1.0, {"x": 1.0})]))

    with no_file_larger_than(100_000), pytest.raises(NoSpaceError, match=r"File too large\. Allow larger .*ulimit -f"):
        outbox.commit(Commit((), {"state": b"x" * 1_000_000}))

    outbox.commit(Commit((), {"state": b"x" * 1_000_000}))
    assert outbox.read(0, 10) == [Summary(1, 1.0, {"x": 1.0})]
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"run.db"}
    outbox.close()


def test_a_batch_is_bounded_in_bytes_however_many_records_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    large = [Text(seq, 0.0, "log", None, None, "x" * 2**24) for seq in range(1, 8)]
    outbox = Outbox(path)
    for record in large:
        outbox.commit(Commit([record]))

    batches, after = [], 0
    while batch := outbox.read(after, 1000):
        batches.append(len(batch))
        after = batch[-1].seq
    outbox.close()

    assert sum(batches) == 7
    assert 1 < max(batches) <= 4
