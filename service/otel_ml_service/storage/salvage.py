"""A new file from what can be read of a damaged one. Killed at any moment, the next start finishes it.

::

    mark ─▶ copy into `….rebuilt` ─▶ the damaged one aside ─▶ the new one in its place ─▶ unmark
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from otel_ml_service.storage.database import Form, is_hindered, open_database, storage_errors

__all__ = [
    "highest",
    "is_suspect",
    "newest_damaged_copy",
    "quarantine",
    "readable",
    "rebuilt",
    "suspect",
    "until_damage",
]

T = TypeVar("T")
Row = tuple[Any, ...]

_TRIES = 1000
"""Damaged places that are jumped over, at most."""

_BESIDE = ("-wal", "-shm")


def suspect(path: Path) -> None:
    """Mark a file as damaged; the next start looks what is left of it."""
    with suppress(OSError):
        _mark(path).touch()


def is_suspect(path: Path) -> bool:
    """Whether the file was found damaged, or is being rebuilt."""
    return _mark(path).exists()


def rebuilt(path: Path, form: Form, copy: Callable[[sqlite3.Connection | None, sqlite3.Connection], T]) -> T | None:
    """Put a new database in the place of a damaged one, which is kept beside it as `….damaged-<n>`.

    Args:
        path: of the database.
        form: of the new one.
        copy: fills the new connection from the damaged one, None where that is not a database at all.

    Returns:
        What `copy` returned; None where a predecessor had copied already.

    Raises:
        StorageError: there is no room for the new one; nothing has changed.
    """
    fresh = path.with_name(f"{path.name}.rebuilt")
    result: T | None = None
    with storage_errors(path):
        # The mark comes first and goes last, and each step in between can be done again: where a kill interrupts this,
        # the next start finishes it.
        _mark(path).touch()
        if path.exists():
            # While the damaged file has its name, the copy of a predecessor counts for nothing: it may be half of one.
            for leftover in _files(fresh):
                leftover.unlink(missing_ok=True)
            with closing(open_database(fresh, form)) as new, closing(sqlite3.connect(path)) as old:
                new.execute("BEGIN")
                result = copy(old if _is_database(old) else None, new)
                new.execute("COMMIT")
            quarantine(path)
        # The log is the damaged file's: SQLite would write what is in it into a new one of the same name.
        for suffix in _BESIDE:
            log = path.with_name(path.name + suffix)
            if log.exists():
                newest = _damaged_copy(path, taken=True)
                log.rename(newest.with_name(newest.name + suffix))
        if fresh.exists():
            fresh.rename(path)
        _mark(path).unlink()
    return result


def readable(connection: sqlite3.Connection, table: str, columns: str, up_to: int) -> Iterator[Row]:
    """Yield the rows of `table` that can be read: forward to each damaged place, and on behind it.

    Args:
        connection: of the damaged database.
        table: with a whole number as its key.
        columns: to read, the key first.
        up_to: the highest key there may be.
    """
    key = columns.partition(",")[0]
    query = f"SELECT {columns} FROM {table} WHERE {key} >= ? ORDER BY {key}"  # `>` would look at the page in front, too
    after, step = 0, 1
    for _ in range(_TRIES):
        try:
            for row in until_damage(connection, query, after + 1):
                if row[0] > after:  # a damaged tree may lead back
                    after, step = row[0], 1
                    yield row
        except (sqlite3.DatabaseError, MemoryError):  # a damaged length may be more than there is memory
            after, step = after + step, 2 * step  # a lost page of the tree hides many entries
        else:
            return
        if after >= up_to:
            return


def until_damage(connection: sqlite3.Connection, query: str, *arguments: object) -> Iterator[Row]:
    """Yield the rows of a query without a limit, up to the last one before a damaged place.

    Raises:
        sqlite3.DatabaseError: the next row cannot be read.
    """
    count = 0
    try:
        for row in connection.execute(query, arguments):
            count += 1
            yield row
    except sqlite3.DatabaseError:
        # Python asks for the next row before it hands one out, and drops the one it has where that fails.
        yield from connection.execute(f"{query} LIMIT 1 OFFSET {count}", arguments)
        raise


def highest(connection: sqlite3.Connection, table: str) -> int:
    """Return the highest key an AUTOINCREMENT table ever had; 2⁶² where that cannot be read."""
    with suppress(sqlite3.Error, TypeError, ValueError):
        found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        return int(found[0])
    return 2**62


def quarantine(path: Path) -> Path:
    """Give a damaged file its name as one, and return that."""
    return path.rename(_damaged_copy(path))


def newest_damaged_copy(path: Path) -> Path:
    """Return where the file that was damaged last is kept."""
    return _damaged_copy(path, taken=True)


def _mark(path: Path) -> Path:
    return path.with_name(f"{path.name}.suspect")


def _files(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", *_BESIDE)]


def _damaged_copy(path: Path, *, taken: bool = False) -> Path:
    """Return the first free name for a damaged file, or the last one that is taken."""
    number = 1
    while path.with_name(f"{path.name}.damaged-{number}").exists():
        number += 1
    # `taken` is 1 or 0: in front of the first free number is the last one that is taken.
    return path.with_name(f"{path.name}.damaged-{max(1, number - taken)}")


def _is_database(connection: sqlite3.Connection) -> bool:
    """Whether there is something to take over; who cannot tell now leaves the file as it is."""
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        if is_hindered(str(error)):
            raise
        return False
    return True
