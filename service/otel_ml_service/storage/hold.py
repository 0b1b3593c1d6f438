"""Keep everybody from a file of a service, without being one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from otel_ml_service.storage.database import READERS_S, is_locked

__all__ = ["held"]


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Lock a file, as who has it open does, until the block ends; False where a service has it.

    One that is not there, is damaged, or must not be written to, is nobody's: there is nothing to lock.
    """
    if not path.is_file():
        yield True
        return
    address = f"{path.resolve().as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, uri=True, timeout=READERS_S, isolation_level=None)) as connection:
        yield _is_locked_now(connection)


def _is_locked_now(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        return not is_locked(error)
    return True
