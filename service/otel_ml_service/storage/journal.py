"""What came in and is not yet decided: appended and synced before a request is acknowledged.

Own thread, group commit: requests that arrive during one commit share the next. With a sync of a few
milliseconds nobody waits for a timer (docs/protocol.md §6.1).
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from otel_ml_exporters.file_identity import identity
from otel_ml_service.storage.database import (
    DamagedError,
    Form,
    StorageError,
    insert,
    is_signed,
    open_database,
    require_known,
    sign,
    storage_errors,
    transaction,
)
from otel_ml_service.storage.recreate import recreated
from otel_ml_service.storage.salvage import highest, is_suspect, newest_damaged_copy, readable, rebuilt, suspect
from otel_ml_service.versions import JOURNAL

__all__ = ["Done", "Entry", "Journal"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

Done = Callable[[int | StorageError], None]
"""Told the id of an entry that is on the disk, or why it is not there."""

_FORM = Form(
    JOURNAL,
    """
CREATE TABLE IF NOT EXISTS journal (id INTEGER PRIMARY KEY AUTOINCREMENT, signal TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS identity (name TEXT NOT NULL)
""",
)
# identity: what runs have consumed of another journal under this name, one that was deleted, says nothing here.
# AUTOINCREMENT: an id must not come back after the table was emptied, runs remember the last one they consumed.

_GROUP = 512
"""Most entries in one commit; bounds how long the first one waits."""

_WORTH_IT_PAGES = 256
"""Of an empty file, from which it is made smaller."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted request: `body` is OTLP protobuf, `signal` is `metrics`, `traces` or `logs`."""

    id: int
    signal: str
    body: bytes


@dataclass(slots=True)
class _Pending(Generic[T]):
    signal: str
    body: bytes
    payload: T
    done: Done


class Journal(Generic[T]):
    """Appends requests durably and hands their decoded payloads on, in the order of their ids.

    Args:
        path: `journal.db`.
        committed: called on the journal's thread after each commit, with (id, payload) in order.
        timeout_s: seconds to wait for a predecessor that is just stopping.

    Raises:
        VersionError: newer code has written it.
        StorageError: it cannot be used.

    Attributes:
        damage: what to tell a person about a file that could not be read as a whole, or "".
    """

    def __init__(
        self, path: Path, committed: Callable[[Sequence[tuple[int, T]]], None], *, timeout_s: float = 0.0
    ) -> None:
        self._path = path
        self._committed = committed
        self.damage = ""
        # The order of a start: refuse newer forms before anything is touched; then finish a repair that was
        # interrupted; then open, and repair where that shows damage.
        self._leftover: Sequence[Entry] = ()
        require_known(path, _FORM, timeout_s)
        is_damaged = is_suspect(path)
        if is_damaged:
            rebuilt(path, _FORM, _take_over)
        try:
            self._open(timeout_s)
        except DamagedError:
            is_damaged = True
            rebuilt(path, _FORM, _take_over)
            self._open(timeout_s)
        if is_damaged:
            self.damage = (
                f"The journal was damaged: {len(self._leftover)} requests could be read and are taken up, the others "
                f"are lost. The damaged file is kept: {newest_damaged_copy(path)}"
            )
        # Guards _pending, _drop_up_to and _closing; the connection belongs to the thread once that runs.
        self._changed = threading.Condition()
        self._pending: list[_Pending[T]] = []
        self._drop_up_to = 0
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="otel-ml-journal", daemon=True)

    def leftover(self) -> Sequence[Entry]:
        """Return what a predecessor acknowledged and did not finish; call before `start`."""
        leftover, self._leftover = self._leftover, ()
        return leftover

    def start(self) -> None:
        """Start committing."""
        self._thread.start()

    def append(self, signal: str, body: bytes, payload: T, done: Done) -> None:
        """Store a request with the next commit; `done` is called once, on the journal's thread or before this returns.

        It must not block: with a future for each request, what waits for it took a sixth of the receiver's time.
        """
        with self._changed:
            is_open = not self._closing
            if is_open:
                # The decoded payload travels with the bytes, so the engine decodes nothing again; after a restart it is
                # decoded from the bytes on the disk.
                self._pending.append(_Pending(signal, body, payload, done))
                self._changed.notify()
        if not is_open:
            done(StorageError("The service is stopping. Send again later.", slug="not-stored"))

    def drop(self, up_to: int) -> None:
        """Forget entries up to this id: every run has committed them. Done with the next commit."""
        with self._changed:
            self._drop_up_to = max(self._drop_up_to, up_to)
            self._changed.notify()

    def close(self) -> None:
        """Commit what is pending, and close; safe twice."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        self._give_back()
        self._connection.close()

    def _give_back(self) -> None:
        """Let the disk have what an empty file takes: SQLite keeps it as large as it ever was."""
        try:
            pages = int(self._connection.execute("PRAGMA page_count").fetchone()[0])
            is_empty = self._connection.execute("SELECT 1 FROM journal LIMIT 1").fetchone() is None
            if is_empty and pages > _WORTH_IT_PAGES:
                self._connection.execute("VACUUM")
        except sqlite3.Error:  # closed before, or no room: the file is as good as before
            _log.debug("%s stays as large as it is.", self._path, exc_info=True)

    def _open(self, timeout_s: float) -> None:
        self._connection = open_database(self._path, _FORM, timeout_s)
        self._file = identity(self._path)
        try:
            self.identity = self._read_identity()
            with storage_errors(self._path):
                if not is_signed(self._connection, _FORM):
                    sign(self._connection, _FORM)
                rows = self._connection.execute("SELECT id, signal, body FROM journal ORDER BY id").fetchall()
        except BaseException:
            self._connection.close()
            raise
        if not all(isinstance(signal, str) and isinstance(body, bytes) for _, signal, body in rows):
            self._connection.close()
            raise DamagedError(f"{str(self._path)!r} holds entries that no otel_ml service wrote.")
        self._leftover = [Entry(*row) for row in rows]

    def _read_identity(self) -> str:
        with storage_errors(self._path):
            row = self._connection.execute("SELECT name FROM identity").fetchone()
            if row is None:
                row = (uuid.uuid4().hex,)
                self._connection.execute("INSERT INTO identity VALUES (?)", row)
        return str(row[0])

    def _work(self) -> None:
        dropped = 0
        while True:
            with self._changed:
                while not (self._pending or self._closing or self._drop_up_to > dropped):
                    self._changed.wait()
                # Group commit: whatever came in during the last sync shares the next one. One sync of 5 ms then serves
                # hundreds of requests, and a lone request waits for nobody.
                group, self._pending = self._pending[:_GROUP], self._pending[_GROUP:]
                drop, closing = self._drop_up_to, self._closing
            if not group and drop == dropped and closing:
                return
            if self._commit(group, drop):
                dropped = drop

    def _commit(self, group: Sequence[_Pending[T]], drop: int) -> bool:
        try:
            ids = self._write(group, drop)
        except StorageError as error:
            if isinstance(error, DamagedError):
                suspect(self._path)
            for pending in group:
                pending.done(error)
            # Nothing was acknowledged, so nothing is lost: the senders keep what they sent and send it again.
            return not group  # a failed deletion alone is tried again with the next commit, not at once
        # First the engine gets them, then the senders hear of it: nothing that is acknowledged is unknown to the
        # engine.
        if group:
            self._committed([(number, pending.payload) for number, pending in zip(ids, group, strict=True)])
        for number, pending in zip(ids, group, strict=True):
            pending.done(number)
        return True

    def _write(self, group: Sequence[_Pending[T]], drop: int) -> Sequence[int]:
        with storage_errors(self._path):
            # Somebody may have deleted the file. SQLite would go on writing into a file without a name, and every
            # acknowledgement would be a lie.
            if identity(self._path) != self._file:  # what is acknowledged must not end with this process
                self._connection = recreated(self._connection, self._path, _FORM)
                self._file = identity(self._path)
            with transaction(self._connection) as connection:
                rows = [(pending.signal, pending.body) for pending in group]
                last = insert(connection, "INSERT INTO journal (signal, body)", rows)
                if drop:
                    connection.execute("DELETE FROM journal WHERE id <= ?", (drop,))
        return range(last - len(group) + 1, last + 1)  # nobody else inserts: ids are given in a row


def _take_over(old: sqlite3.Connection | None, new: sqlite3.Connection) -> int:
    """Copy the requests that can be read, and return how many.

    The new journal has an identity of its own: what runs have consumed of the old one says nothing about it. What they
    have seen of it they recognize by its running numbers.
    """
    if old is None:
        return 0
    rows = readable(old, "journal", "id, signal, body", highest(old, "journal"))
    kept = (row for row in rows if isinstance(row[1], str) and isinstance(row[2], bytes))
    return new.executemany("INSERT INTO journal VALUES (?, ?, ?)", kept).rowcount
