"""Rows go in together, and come out as if one by one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.storage.database import (
    StorageError,
    delete,
    insert,
    is_signed,
    open_database,
    require_known,
    sign,
)
from otel_ml_service.storage.journal_database import FORM

ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.binary(max_size=3)), max_size=120)
TABLE = "CREATE TABLE kept (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, value BLOB)"
INTO = "INSERT OR REPLACE INTO kept (key, value)"


@given(ROWS, st.integers(0, 100))
def test_rows_inserted_together_are_those_inserted_one_by_one(rows: list[tuple[str, bytes]], large: int) -> None:
    rows = [(key, value * (2**20 if index == large else 1)) for index, (key, value) in enumerate(rows)]
    with closing(sqlite3.connect(":memory:")) as together, closing(sqlite3.connect(":memory:")) as single:
        together.execute(TABLE)
        single.execute(TABLE)
        last = insert(together, INTO, iter(rows))
        for row in rows:
            single.execute(f"{INTO} VALUES (?, ?)", row)

        kept = "SELECT id, key, value FROM kept ORDER BY id"
        assert together.execute(kept).fetchall() == single.execute(kept).fetchall()
        assert last == len(rows)


MIB = 2**20


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        ([1] * 90, [32, 32, 26]),
        ([MIB] * 3, [1, 1, 1]),
        ([MIB // 2] * 5, [2, 2, 1]),
        ([1] * 10 + [MIB] + [1] * 40, [11, 32, 8]),
        ([MIB - 1, 1, MIB - 2, 1, 1, 1], [2, 3, 1]),
    ],
    ids=["small", "large", "half", "one of them large", "large to the last byte"],
)
def test_rows_share_a_statement_while_they_are_few_and_small(sizes: list[int], rows: list[int]) -> None:
    """Each statement lets go of Python's lock and takes it again; SQLite copies all that one is given."""
    statements: list[str] = []
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(TABLE)
        connection.set_trace_callback(statements.append)
        insert(connection, INTO, (("", bytes(size)) for size in sizes))
        connection.set_trace_callback(None)

    assert [statement.count("('',") for statement in statements if "VALUES" in statement] == rows


@given(st.lists(st.integers(0, 150), max_size=120))
def test_rows_deleted_together_are_those_deleted_one_by_one(keys: list[int]) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(TABLE)
        insert(connection, "INSERT INTO kept (key)", ((str(n),) for n in range(1, 101)))

        delete(connection, "DELETE FROM kept WHERE id", keys)

        left = [row[0] for row in connection.execute("SELECT id FROM kept ORDER BY id")]
    assert left == [n for n in range(1, 101) if n not in keys]


def test_of_a_file_that_another_process_has_open_nobody_says_that_its_form_is_known(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(open_database(path, FORM)), pytest.raises(StorageError, match="in use by another otel_ml service"):
        require_known(path, FORM)

    require_known(path, FORM)


def test_a_file_says_one_form_and_one_writer_however_often_it_is_signed() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert not is_signed(connection, FORM)
        sign(connection, FORM)
        sign(connection, FORM)

        assert is_signed(connection, FORM)
        assert len(connection.execute("SELECT version FROM writer").fetchall()) == 1


def test_what_is_committed_is_on_the_disk_when_it_is_said_to_be(tmp_path: Path) -> None:
    """An acknowledgement follows: SQLite is asked for a sync at each commit (2 is FULL), and says that it does so."""
    with closing(open_database(tmp_path / "journal.db", FORM)) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    elsewhere.write_bytes(b"")
    path = tmp_path / "state" / "journal.db"
    path.parent.mkdir(mode=0o700)
    path.symlink_to(elsewhere)

    with pytest.raises(StorageError, match="Cannot open"):
        open_database(path, FORM)
    assert elsewhere.read_bytes() == b""
