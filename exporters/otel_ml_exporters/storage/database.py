"""Open a SQLite file the way everything durable of the service is opened: private, exclusive, synced."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from otel_ml.exceptions import OtelMLError
from otel_ml.wire.own_folder import is_ours

__all__ = [
    "DamagedError",
    "NoRoomError",
    "StorageError",
    "delete",
    "insert",
    "open_database",
    "private_folder",
    "storage_errors",
]


class StorageError(OtelMLError):
    """A file of the service cannot be read or written; the message names it and says what to do."""

    slug = "storage"


class DamagedError(StorageError):
    """A file is no database any more, or one in which something is wrong."""

    slug = "damaged-file"


class NoRoomError(StorageError):
    """Nothing can be stored at the moment: the disk is full or read-only, or there are no more files to open."""


_NO_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, *_NO_FILES})


def private_folder(path: Path) -> Path:
    """Create `path` (mode 0700) and its parents, and return it; one that is there is closed to others.

    Raises:
        StorageError: it cannot be created, or is a link or somebody else's.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_ours(path):
            raise StorageError(
                f"The folder {str(path)!r} is a link, or belongs to user {path.lstat().st_uid}: what is written there "
                "could be read or exchanged. Remove it, or choose another folder with OTEL_ML_DIR."
            )
        _close_to_others(path)
    except OSError as error:
        kind = NoRoomError if error.errno in _NO_ROOM else StorageError
        raise kind(
            f"Cannot create the folder {str(path)!r}: {error.strerror}. "
            "Make it writable, or choose another one with OTEL_ML_DIR."
        ) from error
    return path


def _close_to_others(folder: Path) -> None:
    if not stat.S_IMODE(folder.lstat().st_mode) & 0o077:
        return
    try:
        folder.chmod(0o700)
    except OSError as error:
        if error.errno != errno.EROFS:  # on which nobody writes anything; the file that cannot be made is said
            raise


def open_database(path: Path, schema: str, patience_s: float = 0.0) -> sqlite3.Connection:
    """Open `path`, creating it (mode 0600) with `schema`, for this process alone.

    `synchronous=FULL`: a commit is on the disk when it returns, because an acknowledgement follows it.
    `locking_mode=EXCLUSIVE`: two services can never write one file, and WAL needs no shared memory.
    `cache_size` 16 MiB: a commit of a large job is more than the usual 2 MiB hold, and would be written twice (the job
    of `tests.benchmarks.ranks` with 512 ranks took 0.85 cores, and 0.76 since).

    Args:
        path: of the file.
        schema: statements that create what is missing.
        patience_s: seconds to wait for another process to close the file.

    Raises:
        StorageError: corrupt, not a database, in use by another process, or not writable.
    """
    private_folder(path.parent)
    with storage_errors(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        connection = sqlite3.connect(path, timeout=patience_s, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA cache_size=-16384")
            connection.execute("BEGIN IMMEDIATE")
            for statement in filter(None, (part.strip() for part in schema.split(";"))):
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
    return connection


_ROWS, _BYTES = 32, 2**20
"""Rows of one statement, and the bytes from which no further one is added: SQLite copies what it is given.

For each statement Python's lock is let go and taken again, and other threads want it: with 4,096 ranks that send each
second, rows were there 0.98 s after the step (p50), and 1.5 s with a statement for each row.
"""


def insert(connection: sqlite3.Connection, into: str, rows: Iterable[Sequence[object]]) -> int:
    """Insert rows of one width, in their order, and return the id of the last; 0 without rows.

    Args:
        connection: inside a transaction.
        into: the statement up to `VALUES`.
        rows: what the columns get.
    """
    last = 0
    for some in _batches(rows):
        row = f"({','.join('?' * len(some[0]))})"
        statement = f"{into} VALUES {','.join([row] * len(some))}"
        last = connection.execute(statement, list(chain.from_iterable(some))).lastrowid or 0
    return last


def delete(connection: sqlite3.Connection, where: str, keys: Sequence[object]) -> None:
    """Delete the rows of these keys.

    Args:
        connection: inside a transaction.
        where: the statement up to `IN`.
        keys: of the rows, of which some may not be there.
    """
    for begin in range(0, len(keys), _ROWS):
        some = keys[begin : begin + _ROWS]
        connection.execute(f"{where} IN ({','.join('?' * len(some))})", some)


def _batches(rows: Iterable[Sequence[object]]) -> Iterator[Sequence[Sequence[object]]]:
    batch: list[Sequence[object]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, (bytes, str)))
        if len(batch) == _ROWS or size >= _BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system raise into a `StorageError` that names `path`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _operational(path, str(error)) from error
    except sqlite3.DatabaseError as error:
        raise DamagedError(
            f"{str(path)!r} is not a readable otel_ml database ({error}). "
            "Move it away to start anew; what the exporters already wrote is not affected."
        ) from error
    except UnicodeDecodeError as error:  # what SQLite says of a damaged schema quotes it
        raise DamagedError(f"{str(path)!r} is not a readable otel_ml database. Move it away to start anew.") from error
    except OSError as error:
        if error.errno in _NO_FILES:
            raise _no_files(path) from error
        if error.errno in _NO_ROOM:
            raise NoRoomError(_no_room(path, error.strerror or str(error))) from error
        raise StorageError(f"Cannot open {str(path)!r}: {error.strerror}. Check its owner and permissions.") from error


def _operational(path: Path, text: str) -> StorageError:
    if "locked" in text or "busy" in text:
        return StorageError(
            f"{str(path)!r} is in use by another otel_ml service. Stop that one, or choose another OTEL_ML_DIR."
        )
    if "full" in text or "readonly" in text:
        return NoRoomError(_no_room(path, "No space left" if "full" in text else "it is read-only"))
    if "unable to open" in text and not _may_open_files():  # SQLite does not say why
        return _no_files(path)
    return StorageError(f"Cannot use {str(path)!r}: {text}. Check the disk and the permissions.")


def _may_open_files() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _NO_FILES
    return True


def _no_files(path: Path) -> NoRoomError:
    return NoRoomError(
        f"{str(path)!r} cannot be opened: the service has as many files open as it may. What is not stored is tried "
        "again when a run or a connection has ended; allow more with ulimit -n."
    )


def _no_room(path: Path, reason: str) -> str:
    return (
        f"{str(path)!r} cannot be written to: {reason}. Free some space, make the disk writable, or choose another "
        "OTEL_ML_DIR; what is not stored is tried again."
    )
