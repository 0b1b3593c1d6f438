"""A database whose file was deleted, moved or replaced under an open connection is written anew, under its name.

SQLite goes on with a file that has no name anymore, and everything ends with the process. What the connection has is
all there is: it is copied.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from otel_ml_service.storage.database import Form, open_database, private_folder, storage_errors

__all__ = ["recreated"]


def recreated(connection: sqlite3.Connection, path: Path, form: Form) -> sqlite3.Connection:
    """Return a connection to a new file at `path` that holds what `connection` does, which is closed.

    A file that has the name by now is somebody else's, and is set aside as `….replaced`.

    Args:
        connection: opened by `open_database`, in no transaction.
        path: of the file.
        form: its own.

    Raises:
        StorageError: the new file cannot be written; `connection` is as it was.
    """
    private_folder(path.parent)
    fresh = path.with_name(f"{path.name}.anew")
    with storage_errors(path):
        fresh.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        with closing(sqlite3.connect(fresh)) as copy:
            connection.backup(copy)
        # Not before the copy is whole: until then this connection has all there is.
        connection.close()
        if path.exists():
            path.replace(path.with_name(f"{path.name}.replaced"))
        for suffix in ("-wal", "-shm"):  # of the other one: they would be taken for those of the copy
            path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
        fresh.replace(path)
    return open_database(path, form)
