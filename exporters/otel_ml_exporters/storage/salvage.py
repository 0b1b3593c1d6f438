"""What can still be read of a damaged journal; the file is moved aside, so that a new one can begin."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

__all__ = ["salvaged"]

Row = tuple[int, str, bytes]

_TRIES = 1000
"""Damaged places that are jumped over, at most."""


def salvaged(path: Path) -> tuple[list[Row], Path]:
    """Move `path` aside, and return its readable entries, in order, and where it is now."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):  # the database last: its log belongs to the name
        found = path.with_name(path.name + suffix)
        if found.exists():
            found.rename(aside.with_name(aside.name + suffix))
    with suppress(sqlite3.Error), closing(sqlite3.connect(aside)) as connection:
        return _rows(connection), aside
    return [], aside


def _rows(connection: sqlite3.Connection) -> list[Row]:
    """Read forward to each damaged place, and go on behind it."""
    found: dict[int, Row] = {}
    after, highest, step = 0, _highest(connection), 1
    for _ in range(_TRIES):
        try:
            for row in connection.execute("SELECT id, signal, body FROM journal WHERE id > ? ORDER BY id", (after,)):
                found[row[0]] = row
                after, step = row[0], 1
            break
        except sqlite3.DatabaseError:
            after, step = after + step, 2 * step  # a lost page of the tree hides many entries
        if after >= highest:
            break
    return [row for _, row in sorted(found.items()) if isinstance(row[1], str) and isinstance(row[2], bytes)]


def _highest(connection: sqlite3.Connection) -> int:
    try:
        return int(connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'journal'").fetchone()[0])
    except (sqlite3.Error, TypeError):
        return 2**62
