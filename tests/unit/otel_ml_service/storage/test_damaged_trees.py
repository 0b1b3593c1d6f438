"""A table of which a disk has taken, or mixed up, some pages: what is read of the rest, and how much is passed over."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters import Text
from otel_ml_service.storage import salvage
from otel_ml_service.storage.outbox import Commit, Outbox

ROWS = 400
PAGE = 4096


def table(folder: Path) -> tuple[Path, int, list[int]]:
    """Return a file of one row a page, the offset of the first page of its tree, and where that has its entries."""
    path = folder / "table.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={PAGE}")
        connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, body BLOB)")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO kept VALUES (?, ?)", ((n, bytes(2800)) for n in range(1, ROWS + 1)))
        connection.execute("COMMIT")
        root = connection.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    return path, (root - 1) * PAGE, entries(path, root)


def entries(path: Path, root: int) -> list[int]:
    """Return where a table's first page has the numbers of the pages beneath, each in front of its highest key."""
    start = (root - 1) * PAGE
    page = path.read_bytes()[start : start + PAGE]
    assert page[0] == 5, "it has pages beneath"
    count = int.from_bytes(page[3:5], "big")
    return [start + int.from_bytes(page[12 + 2 * n : 14 + 2 * n], "big") for n in range(count)]


def beneath(content: bytearray, entry: int) -> int:
    return int.from_bytes(content[entry : entry + 4], "big")


def read(path: Path, up_to: int = ROWS) -> Sequence[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in salvage.readable(connection, "kept", "id, body", up_to)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, list[int]]:
    return table(tmp_path_factory.mktemp("whole"))


@given(st.data())
def test_no_more_rows_are_passed_over_than_a_damaged_place_had(
    whole: tuple[Path, int, list[int]], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path, _, places = whole
    first = data.draw(st.integers(0, ROWS - 2))
    count = data.draw(st.integers(1, ROWS - 1 - first))
    content = bytearray(path.read_bytes())
    for entry in places[first : first + count]:
        start = (beneath(content, entry) - 1) * PAGE
        content[start : start + PAGE] = b"\xa5" * PAGE
    damaged = tmp_path_factory.mktemp("damaged") / "table.db"
    damaged.write_bytes(content)

    found = read(damaged)

    gone = range(first + 1, first + count + 1)
    assert set(found).isdisjoint(gone)
    assert found[:first] == list(range(1, first + 1)), "what is in front of it is all there"
    assert found[first:] == list(range(ROWS - len(found) + first + 1, ROWS + 1)), "what is behind it begins late"
    assert len(found) > ROWS - 2 * count


def test_of_a_tree_that_leads_back_each_row_is_read_once(whole: tuple[Path, int, list[int]], tmp_path: Path) -> None:
    path, _, places = whole
    content = bytearray(path.read_bytes())
    content[places[100] : places[100] + 4] = content[places[50] : places[50] + 4]
    content[places[102] : places[102] + 4] = content[places[101] : places[101] + 4]
    (tmp_path / "table.db").write_bytes(content)

    assert read(tmp_path / "table.db") == [n for n in range(1, ROWS + 1) if n not in (101, 103)]


def test_behind_a_damaged_end_rows_are_looked_for_as_far_as_numbers_go(
    whole: tuple[Path, int, list[int]], tmp_path: Path
) -> None:
    """Nobody knows the highest number there was."""
    path, start, _ = whole
    content = bytearray(path.read_bytes())
    last = (beneath(content, start + 8) - 1) * PAGE
    content[last : last + PAGE] = b"\xa5" * PAGE
    (tmp_path / "table.db").write_bytes(content)

    with closing(sqlite3.connect(tmp_path / "table.db")) as connection:
        assert read(tmp_path / "table.db", salvage.highest(connection, "kept")) == list(range(1, ROWS))


RECORDS = [Text(seq, float(seq), f"note {seq}", "step", None, "text" * 300) for seq in range(1, 201)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "state" / "run.db"
    with closing(Outbox(path)) as outbox:
        outbox.commit(Commit(RECORDS, {"run": b"the engine"}))
    return path


def test_of_the_sentences_of_a_run_those_in_front_of_a_damaged_page_are_kept_to_the_last(path: Path) -> None:
    sentences = [f"{number} ".ljust(900, ".") for number in range(100)]
    with closing(Outbox(path)) as outbox:
        outbox.commit(Commit(notices=sentences))
    with closing(sqlite3.connect(path)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'notices'").fetchone()[0]
    content, places = bytearray(path.read_bytes()), entries(path, root)
    highest_in_front = content[places[9] + 4]
    lost = (beneath(content, places[10]) - 1) * PAGE
    content[lost : lost + PAGE] = b"\xa5" * PAGE
    path.write_bytes(content)

    with closing(Outbox(path)) as outbox:
        assert highest_in_front > 20
        assert outbox.notices == sentences[:highest_in_front]


def with_last_page_lost(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'records'").fetchone()[0]
    content = bytearray(path.read_bytes())
    right = int.from_bytes(content[(root - 1) * PAGE + 8 : (root - 1) * PAGE + 12], "big")
    content[(right - 1) * PAGE : right * PAGE] = b"\xa5" * PAGE
    path.write_bytes(content)


def with_a_last_number_of(digits: int, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE facts SET value = ? WHERE name = 'seq'", ("9" * digits,))


@pytest.mark.parametrize(
    "damages",
    [
        [with_last_page_lost],
        [partial(with_a_last_number_of, 30), with_last_page_lost],
        [partial(with_a_last_number_of, 5_000), with_last_page_lost],  # Python reads no number of so many digits
    ],
    ids=["page", "and number", "and no number"],
)
def test_a_run_whose_newest_records_are_lost_goes_on_with_the_others(
    path: Path, damages: Sequence[Callable[[Path], None]]
) -> None:
    for damage in damages:
        damage(path)
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        found = outbox.read(0, 1000)
        assert 150 < len(found) < 200
        assert found == RECORDS[: len(found)]
        assert outbox.state() == {"run": b"the engine"}
        more = Text(201, 201.0, "log", "step", None, "goes on")
        outbox.commit(Commit([more]))
        assert outbox.read(len(found), 1000) == [more]


def test_a_run_that_no_longer_says_its_last_number_has_what_is_behind_a_damaged_page(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM facts WHERE name = 'seq'")
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'records'").fetchone()[0]
    content = bytearray(path.read_bytes())
    lost = (beneath(content, entries(path, root)[10]) - 1) * PAGE
    content[lost : lost + PAGE] = b"\xa5" * PAGE
    path.write_bytes(content)
    salvage.suspect(path)

    with closing(Outbox(path)) as outbox:
        found = outbox.read(0, 1000)
        assert 150 < len(found) < 200
        assert (found[0], found[-1]) == (RECORDS[0], RECORDS[-1])


def test_the_log_of_a_file_that_is_no_database_any_more_is_set_aside_with_it(path: Path) -> None:
    """SQLite would take it for the log of the new file."""
    log = path.with_name("run.db-wal")
    with closing(Outbox(path)) as outbox:
        outbox.commit(Commit([Text(201, 201.0, "log", "step", None, "in the log alone")]))
        of_a_killed_service = log.read_bytes()
    path.write_bytes(b"garbage" * 1000)
    log.write_bytes(of_a_killed_service)

    with closing(Outbox(path)) as outbox:
        assert outbox.read(0, 1000) == []

    assert path.with_name("run.db.damaged-1-wal").read_bytes() == of_a_killed_service
    left = {found.name for found in path.parent.iterdir()}
    assert left - {"run.db.damaged-1-shm"} == {"run.db", "run.db.damaged-1", "run.db.damaged-1-wal"}
