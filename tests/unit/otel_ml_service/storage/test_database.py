"""Rows go in together, and come out as if one by one."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.storage.database import insert, is_signed, sign
from otel_ml_service.storage.journal import _FORM

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


def test_a_file_says_one_form_and_one_writer_however_often_it_is_signed() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert not is_signed(connection, _FORM)
        sign(connection, _FORM)
        sign(connection, _FORM)

        assert is_signed(connection, _FORM)
        assert len(connection.execute("SELECT version FROM writer").fetchall()) == 1
