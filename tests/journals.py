"""Journals as former versions of otel_ml wrote them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

__all__ = ["first_form"]


def first_form(path: Path, bodies: Sequence[bytes]) -> None:
    """Write a journal of the first form, with these requests in rows from 1 on; its identity is `abc`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("""
            CREATE TABLE journal (id INTEGER PRIMARY KEY AUTOINCREMENT, signal TEXT NOT NULL, body BLOB NOT NULL);
            CREATE TABLE identity (name TEXT NOT NULL);
            CREATE TABLE writer (version TEXT NOT NULL);
            INSERT INTO identity VALUES ('abc');
            INSERT INTO writer VALUES ('0.1.0');
            PRAGMA user_version = 1;
            PRAGMA journal_mode = WAL;
        """)
        rows = [("metrics", body) for body in bodies]
        connection.executemany("INSERT INTO journal (signal, body) VALUES (?, ?)", rows)
