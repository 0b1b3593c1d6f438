"""Open a SQLite file as everything durable of the service is opened: private, exclusive, synced, of a known form."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from otel_ml.exceptions import OtelMLError
from otel_ml.wire.folder_ownership import is_ours
from otel_ml.wire.versions import own_version, require
from otel_ml_service.storage.system_refusals import NO_FILES, may_open_files, refusal_of_growth

__all__ = [
    "READERS_S",
    "DamagedError",
    "Form",
    "InUseError",
    "NoSpaceError",
    "StorageError",
    "delete",
    "insert",
    "is_hindered",
    "is_locked",
    "is_signed",
    "open_database",
    "opened_to_read",
    "private_folder",
    "require_known",
    "sign",
    "storage_errors",
    "transaction",
]


class StorageError(OtelMLError):
    """A file of the service cannot be read or written; the message names it and says what to do."""

    slug = "storage"


class DamagedError(StorageError):
    """A file is no longer a database, or one in which something is wrong."""

    slug = "damaged-file"


class InUseError(StorageError):
    """Another process has a file open to write."""


class NoSpaceError(StorageError):
    """Nothing can be stored at the moment: the disk is full or read-only, or there are no more files to open."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a file holds.

    Attributes:
        version: goes up with every change of the tables, or of what is in them.
        schema: statements that create what is missing.
    """

    version: int
    schema: str


_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, *NO_FILES})


READERS_S = 5.0
"""Seconds a file may be locked by commands that read what a killed service left: they are no other service."""


def private_folder(path: Path) -> Path:
    """Create `path` (mode 0700) and its parents, and return it; one that is there is closed to others.

    Raises:
        StorageError: it cannot be created, or is a link or somebody else's.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Of a folder that was there `mkdir` changes nothing: whose it is, and who may enter, is looked at here.
        if not is_ours(path):
            raise StorageError(
                f"The folder {str(path)!r} is a link, or belongs to user {path.lstat().st_uid}: what is written there "
                "could be read or exchanged. Remove it, or choose another folder with OTEL_ML_DIR."
            )
        _close_to_others(path)
    except OSError as error:
        kind = NoSpaceError if error.errno in _NO_SPACE else StorageError
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
        if error.errno != errno.EROFS:  # on which nobody writes anything; the file that cannot be made is reported
            raise


def open_database(path: Path, form: Form, timeout_s: float = 0.0) -> sqlite3.Connection:
    """Open `path`, creating it (mode 0600), for this process alone.

    A new file has the form `form`; one of an older form is to be signed by whoever has put it into this one.

    `synchronous=FULL`: a commit is on the disk when it returns, because an acknowledgement follows it.
    `locking_mode=EXCLUSIVE`: two services can never write one file, and WAL needs no shared memory.
    `cache_size` 16 MiB: a commit of a large job is more than the usual 2 MiB hold, and would be written twice (the job
    of `tests.benchmarks.ranks` with 512 ranks took 0.85 cores, and 0.76 since).

    Args:
        path: of the file.
        form: `require_known` has found it, or an older one.
        timeout_s: seconds to wait for another service to close the file; for who reads it there are some in any case.

    Raises:
        StorageError: corrupt, not a database, in use by another process, or not writable.
    """
    private_folder(path.parent)
    with storage_errors(path):
        # Made before SQLite opens it, which would follow a link, and give it the rights of the umask.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        # isolation_level=None: a transaction begins where we write BEGIN. One thread opens it, others use it in turn.
        connection = sqlite3.connect(
            path, timeout=max(timeout_s, READERS_S), isolation_level=None, check_same_thread=False
        )
        try:
            # First: SQLite does without shared memory only where it has the file alone before it uses the log.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA cache_size=-16384")
            # Takes the lock now: another service is refused when it opens the file, and not when it first writes.
            connection.execute("BEGIN IMMEDIATE")
            is_new = connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None
            # One by one: `executescript()` would first commit the transaction, and let go of the lock.
            for statement in filter(None, (part.strip() for part in form.schema.split(";"))):
                connection.execute(statement)
            if is_new:
                sign(connection, form)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
    return connection


def require_known(path: Path, form: Form, timeout_s: float = 0.0) -> None:
    """Do nothing where a file has a form that this code reads; its bytes stay as they are in any case.

    One of which that cannot be told, as it is damaged, is left to who opens it.

    Args:
        path: of the file, which need not be there.
        form: the newest form that is known.
        timeout_s: seconds to wait for another process to close the file.

    Raises:
        VersionError: newer code has written it.
        InUseError: another process has it open to write.
    """
    if not path.exists():
        return
    with storage_errors(path):
        try:
            with opened_to_read(path, timeout_s) as connection:
                found, writer = _signed(connection)
        except sqlite3.DatabaseError as error:
            if is_locked(error):
                raise
            return
    require(path, found, form.version, writer)


def _signed(connection: sqlite3.Connection) -> tuple[int, str]:
    """Return the version of a file's form, 1 where none is said, and of the otel_ml that brought it."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not version:
        return 1, ""
    writer = connection.execute("SELECT version FROM writer").fetchone()
    if writer is None:  # a form and its writer are written together: the disk has changed one of them
        raise sqlite3.DatabaseError("the file says its form, and not who brought it")
    return version, str(writer[0])


def is_signed(connection: sqlite3.Connection, form: Form) -> bool:
    """Whether the file says that it has this form."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0]) == form.version


def sign(connection: sqlite3.Connection, form: Form) -> None:
    """Note that the file has this form, and which otel_ml has brought it there; belongs into a transaction."""
    connection.execute("CREATE TABLE IF NOT EXISTS writer (version TEXT NOT NULL)")
    connection.execute("DELETE FROM writer")
    connection.execute("INSERT INTO writer VALUES (?)", (own_version(),))
    connection.execute(f"PRAGMA user_version = {form.version:d}")


@contextmanager
def opened_to_read(path: Path, timeout_s: float = 0.0) -> Iterator[sqlite3.Connection]:
    """Open a database for reading only; closed at the end of the block, and everything as it was before.

    One that was closed in order (no log beside it) is opened as immutable: SQLite would else leave a new log behind,
    and looking at a run must not make it look newer. Nobody is kept from writing to it by that: where somebody has,
    what was read may be of two states.

    Raises:
        sqlite3.OperationalError: it is locked, or was written to inside the block: nothing that was read counts.
    """
    log, index = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    closed_as = None if log.exists() else _stamp(path)
    how = "mode=ro" if closed_as is None else "immutable=1"
    had_index = index.exists()
    try:
        address = f"{path.resolve().as_uri()}?{how}"
        with closing(sqlite3.connect(address, uri=True, timeout=timeout_s)) as connection:
            yield connection
        _require_unchanged(path, log, closed_as)
    except (sqlite3.DatabaseError, zlib.error, ValueError):
        _require_unchanged(path, log, closed_as)
        raise
    finally:
        if not had_index and index.exists():  # a disk that is read-only refuses to remove even what is not there
            index.unlink(missing_ok=True)  # of the log; SQLite leaves it to whoever writes


def _require_unchanged(path: Path, log: Path, closed_as: tuple[int, ...] | None) -> None:
    if closed_as is not None and (log.exists() or _stamp(path) != closed_as):
        # Worded as SQLite does, so that `is_locked` takes it for the same.
        raise sqlite3.OperationalError("database is locked: it was opened for writing while it was read")


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what is another one after each write, also where who writes sets the time of the file back."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_ctime_ns


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
        if error.errno in _NO_SPACE:
            raise _short_of(path, error) from error
        raise StorageError(f"Cannot open {str(path)!r}: {error.strerror}. Check its owner and permissions.") from error


def _operational(path: Path, text: str) -> StorageError:
    if _says_locked(text):
        return InUseError(
            f"{str(path)!r} is in use by another otel_ml service. Stop that one, or choose another OTEL_ML_DIR."
        )
    # By SQLite's words: its codes are in the error from Python 3.11 on only.
    if "full" in text or "readonly" in text:
        return NoSpaceError(_no_space(path, "No space left" if "full" in text else "it is read-only"))
    if "unable to open" in text and not may_open_files():  # SQLite does not say why
        return _no_files(path)
    refusal = refusal_of_growth(path) if "I/O error" in text else None
    if refusal is not None and refusal.errno in _NO_SPACE:
        return _short_of(path, refusal)
    return StorageError(f"Cannot use {str(path)!r}: {text}. Check the disk and the permissions.")


def is_hindered(text: str) -> bool:
    """Whether SQLite says that it cannot get at a file, which says nothing of what is in it."""
    return _says_locked(text) or "unable to open" in text


def is_locked(error: BaseException) -> bool:
    """Whether a file could not be read, or not used, because another process has it open to write."""
    return isinstance(error, InUseError) or (isinstance(error, sqlite3.DatabaseError) and _says_locked(str(error)))


def _says_locked(text: str) -> bool:
    return "locked" in text or "busy" in text


def _short_of(path: Path, error: OSError) -> NoSpaceError:
    if error.errno in NO_FILES:
        return _no_files(path)
    if error.errno == errno.EFBIG:
        return NoSpaceError(
            f"{str(path)!r} cannot be written to: {error.strerror}. Allow larger files with ulimit -f, or choose "
            "another OTEL_ML_DIR; what is not stored is tried again."
        )
    return NoSpaceError(_no_space(path, error.strerror or str(error)))


def _no_files(path: Path) -> NoSpaceError:
    return NoSpaceError(
        f"{str(path)!r} cannot be opened: the service has as many files open as it may. What is not stored is tried "
        "again when a run or a connection has ended; allow more with ulimit -n."
    )


def _no_space(path: Path, reason: str) -> str:
    return (
        f"{str(path)!r} cannot be written to: {reason}. Free some space, make the disk writable, or choose another "
        "OTEL_ML_DIR; what is not stored is tried again."
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Make what the block writes durable together, or nothing of it."""
    connection.execute("BEGIN")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # Where the disk is full, or fails, SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
