"""`journal.db`: whose journal it is, which ids were given, and what a journal of the first form held as rows.

Who has it open has the files beside it (`journal_files.py`).
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from otel_ml_exporters.file_identity import identity
from otel_ml_service.storage.database import (
    DamagedError,
    Form,
    is_signed,
    open_database,
    opened_to_read,
    require_known,
    sign,
    storage_errors,
    transaction,
)
from otel_ml_service.storage.journal_files import identity_of_files, ids_in_files, refuse_newer_files
from otel_ml_service.storage.journal_frames import MAX_ID, Entry, is_entry
from otel_ml_service.storage.recreate import recreated
from otel_ml_service.storage.salvage import highest, is_suspect, readable, rebuilt, suspect
from otel_ml_service.versions import JOURNAL

__all__ = ["FORM", "JournalDatabase", "ids_in"]

FORM = Form(
    JOURNAL,
    """
CREATE TABLE IF NOT EXISTS identity (name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS ids (last INTEGER NOT NULL, dropped INTEGER NOT NULL)
""",
)
# identity: what runs have consumed of another journal under this name, one that was deleted, says nothing here.
# ids.last: no id up to it is given again, runs remember the last one they consumed.

_FIRST_FORM = "CREATE TABLE journal (id INTEGER PRIMARY KEY AUTOINCREMENT, signal TEXT NOT NULL, body BLOB NOT NULL)"


class JournalDatabase:
    """The open database of a journal; for one thread at a time.

    Args:
        path: of it.
        timeout_s: seconds to wait for a predecessor that is just stopping.

    Raises:
        VersionError: newer code has written it, or, where it is gone or damaged, a file beside it.
        StorageError: it cannot be used.

    Attributes:
        identity: of the journal.
        last: no id up to it is to be given; None where it does not say so.
        dropped: id up to which nothing is needed.
        former: requests that it holds as rows, as the first form did, by id.
        was_damaged: what could be read of it is in a new one.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        # The order of a start: refuse newer forms before anything is touched; then finish a repair that was
        # interrupted; then open, and repair where that shows damage.
        require_known(path, FORM, timeout_s)
        self.was_damaged = is_suspect(path)
        if self.was_damaged or not path.exists():
            refuse_newer_files(path.parent)
        if self.was_damaged:
            rebuilt(path, FORM, _take_over)
        try:
            self._open(timeout_s)
        except DamagedError:
            self.was_damaged = True
            refuse_newer_files(path.parent)
            rebuilt(path, FORM, _take_over)
            self._open(timeout_s)

    def _open(self, timeout_s: float) -> None:
        self._connection = open_database(self._path, FORM, timeout_s)
        self._file = identity(self._path)
        try:
            with storage_errors(self._path):
                self.identity = self._read_identity()
                self.last, self.dropped = self._read_ids()
                self.former = self._read_former()
        except BaseException:
            self._connection.close()
            raise

    def _read_identity(self) -> str:
        row = self._connection.execute("SELECT name FROM identity").fetchone()
        if row is None:
            # Files without their database are still of the journal that they were of: runs know it.
            row = (identity_of_files(self._path.parent) or uuid.uuid4().hex,)
            self._connection.execute("INSERT INTO identity VALUES (?)", row)
        return str(row[0])

    def _read_ids(self) -> tuple[int | None, int]:
        # No row: the first form, which had its ids from `sqlite_sequence`, or a file that was just made.
        row = self._connection.execute("SELECT last, dropped FROM ids").fetchone()
        if row is None:
            return None, 0
        if not all(isinstance(number, int) and 0 <= number <= MAX_ID for number in row):
            raise self._nobodys()
        return int(row[0]), int(row[1])

    def _read_former(self) -> Sequence[Entry]:
        if not self._has_rows():
            return []
        rows = self._connection.execute("SELECT id, signal, body FROM journal ORDER BY id").fetchall()
        if not all(map(is_entry, rows)):
            raise self._nobodys()
        given = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'journal'").fetchone()
        if self.last is None and given is not None and isinstance(given[0], int) and given[0] <= MAX_ID:
            self.last = given[0]
        return [Entry(*row) for row in rows]

    def _has_rows(self) -> bool:
        return self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'journal'").fetchone() is not None

    def _nobodys(self) -> DamagedError:
        return DamagedError(f"{str(self._path)!r} holds entries that no otel_ml service wrote.")

    def settle(self, last: int, dropped: int) -> None:
        """Note which ids were given and what is needed, in this form: what was in rows is in files by now.

        Raises:
            StorageError: nothing is noted.
        """
        had_rows = self._has_rows()
        with self._changing() as connection:
            connection.execute("DROP TABLE IF EXISTS journal")
            if not is_signed(connection, FORM):
                sign(connection, FORM)
            _write_ids(connection, last, dropped)
        if had_rows:
            with suppress(sqlite3.Error):  # no room for the copy: it stays as large as it is
                self._connection.execute("VACUUM")

    def note(self, last: int, dropped: int) -> None:
        """Note that ids up to `last` are given from now on, and up to `dropped` nothing is needed.

        Raises:
            StorageError: it is not noted.
        """
        with self._changing() as connection:
            _write_ids(connection, last, dropped)

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        try:
            with storage_errors(self._path), transaction(self._connection) as connection:
                yield connection
        except DamagedError:  # reading did not show it; the next start looks what is left
            suspect(self._path)
            raise

    def keep_name(self) -> None:
        """Write it again where somebody has deleted, moved or replaced it.

        SQLite would go on with a file without a name: a second service would have the journal, too.

        Raises:
            StorageError: it cannot be written; what is open is as it was.
        """
        with storage_errors(self._path):
            if identity(self._path) != self._file:
                self._connection = recreated(self._connection, self._path, FORM)
                self._file = identity(self._path)

    def close(self) -> None:
        """Close it; again is fine."""
        self._connection.close()


def ids_in(path: Path, after: int) -> set[int]:
    """Return the ids above `after` of the requests in a journal that nobody has open.

    Raises:
        sqlite3.DatabaseError: somebody has it open, or it cannot be read.
        StorageError: a file beside it cannot be read.
    """
    with opened_to_read(path) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        name = "".join(row[0] for row in connection.execute("SELECT name FROM identity"))
        known = connection.execute("SELECT dropped FROM ids").fetchone() if "ids" in tables else None
        after = max(after, known[0] if known else 0)
        rows = connection.execute("SELECT id FROM journal WHERE id > ?", (after,)) if "journal" in tables else ()
        former = {row[0] for row in rows}
    return former | ids_in_files(path.parent, name, after)


def _write_ids(connection: sqlite3.Connection, last: int, dropped: int) -> None:
    connection.execute("DELETE FROM ids")
    connection.execute("INSERT INTO ids VALUES (?, ?)", (last, dropped))


def _take_over(old: sqlite3.Connection | None, new: sqlite3.Connection) -> int:
    """Copy the requests in rows that can be read, and return how many.

    The new journal has an identity of its own, where no file says one: what runs have consumed of the old one says
    nothing about it. What they have seen of it they recognize by its running numbers.
    """
    if old is None:
        return 0
    new.execute(_FIRST_FORM)
    rows = readable(old, "journal", "id, signal, body", highest(old, "journal"))
    return new.executemany("INSERT INTO journal VALUES (?, ?, ?)", (row for row in rows if is_entry(row))).rowcount
