"""Keep everybody from a file of a service, without being one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from otel_ml_service.storage.database import READERS_S, is_locked

__all__ = ["held"]


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Lock a file, as who has it open does, until the block ends; False where a service has it.

    One that is not there, is damaged, or must not be opened, is nobody's: there is nothing to lock.
    """
    with ExitStack() as open_files:
        yield not path.is_file() or _is_locked_now(path, open_files)


def _is_locked_now(path: Path, open_files: ExitStack) -> bool:
    address = f"{path.resolve().as_uri()}?mode=rw"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=READERS_S, isolation_level=None)
        open_files.enter_context(closing(connection))
        # Before it uses the log: there `BEGIN EXCLUSIVE` alone keeps other writers out, and no readers.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        return not is_locked(error)
    return True
