"""One run on disk: closed records, the engine's state, and how far everybody is.

One thread writes (the engine's), in one transaction per commit; each exporter's thread reads.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from otel_ml_exporters.file_identity import identity
from otel_ml_exporters.records import Record
from otel_ml_service.storage.checksum import ONE_BY_ONE, sealed
from otel_ml_service.storage.database import (
    DamagedError,
    StorageError,
    delete,
    insert,
    is_signed,
    open_database,
    require_known,
    sign,
    storage_errors,
    transaction,
)
from otel_ml_service.storage.exporter_marks import ExporterMarks, Mark
from otel_ml_service.storage.packed_rows import dictionaries_of, entry_kind, rows_after, value_of
from otel_ml_service.storage.recent_records import RecentRecords
from otel_ml_service.storage.record_codec import Row, decode, encode, nbytes
from otel_ml_service.storage.recreate import recreated
from otel_ml_service.storage.run_form import FORM
from otel_ml_service.storage.salvage import is_suspect, newest_damaged_copy, rebuilt, suspect
from otel_ml_service.storage.salvaged_records import BASE, SALVAGED, SalvagedRecords, number_anew, take_over

__all__ = ["Commit", "Outbox"]

_log = logging.getLogger(__name__)

_BEHIND = "disk0"  # `0` follows `/` in the order of the keys
"""The first key that is behind those."""

# Two ranges, which the index finds: what lies between them may be millions of rows, and is not looked at.
_STATE = "SELECT key, value FROM engine WHERE key < ? UNION ALL SELECT key, value FROM engine WHERE key >= ?"

MAX_NOTICES = 10_000
"""Sentences kept of a run; what more is said is in the log."""

_READ_BYTES = 64 * 2**20
"""Records handed to an exporter at once, unless one alone is larger."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What becomes durable together.

    Attributes:
        records: closed records, `seq` ascending.
        changes: engine state; None deletes an entry.
        consumed: (identity of the journal, id of its last entry this run has seen), or None.
        notices: sentences; one already there is not repeated.
        facts: what a restart needs to know about the run itself.
    """

    records: Sequence[Record] = ()
    changes: Mapping[str, bytes | None] = field(default_factory=dict)
    consumed: tuple[str, int] | None = None
    notices: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


class Outbox:
    """`run.db` of one run.

    Raises:
        VersionError: newer code has written it.
        StorageError: it cannot be used.

    Attributes:
        damage: what to tell a person about a file that could not be read as a whole, or "".
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damage = ""
        # Guards the connection: the engine's thread writes through it, exporters' threads read through it
        # (the file is locked exclusively, so there is only one).
        self._lock = threading.Lock()
        self._recent = RecentRecords()
        self._listeners: dict[str, Callable[[], None]] = {}
        require_known(path, FORM)
        is_damaged = is_suspect(path)
        remains = rebuilt(path, FORM, take_over) if is_damaged else None
        try:
            self._open()
        except DamagedError:
            is_damaged = True
            remains = rebuilt(path, FORM, take_over)
            self._open()
        if is_damaged:
            self._note_damage(remains)

    def _open(self) -> None:
        self._connection = open_database(self.path, FORM)
        self._file = identity(self.path)
        try:
            with storage_errors(self.path):
                self._load()
            self._opened_at = self.last_seq
        except BaseException:
            self._connection.close()
            raise

    def _note_damage(self, remains: SalvagedRecords | None) -> None:
        records = "what could be read is taken over" if remains is None else f"{remains.records} records could be read"
        if remains is not None and remains.missing:
            records += f", {remains.missing} that an exporter had not written could not"
        copy = newest_damaged_copy(self.path)
        self.damage = f"{self.path.name} was damaged: {records}. The damaged file is kept: {copy}."
        if not self.state():
            self._note_lost_state()

    @property
    def base(self) -> int:
        """The `seq` after which a run without engine state goes on: 0, or above all that ever was."""
        return int(self.facts.get(BASE, "0"))

    def forget_state(self) -> None:
        """Give up the engine's state: it cannot be read. Records are numbered above all that ever was from now on."""
        with self._using() as connection, transaction(connection):
            number_anew(connection, self.last_seq)
        with self._using():
            self._load()
        self._note_lost_state()

    def _note_lost_state(self) -> None:
        found = self.damage or f"{self.path.name} was damaged."
        self.damage = (
            f"{found} What was open and what had arrived is no longer known: "
            f"open steps begin anew with what comes, and records are numbered from {self.base + 1} on."
        )

    def _load(self) -> None:
        query = self._connection.execute
        self._is_signed = is_signed(self._connection, FORM)
        self._dictionaries = dictionaries_of(self._connection)
        self.last_seq = int(query("SELECT COALESCE(MAX(seq), 0) FROM records").fetchone()[0])
        self.first_seq = int(query("SELECT COALESCE(MIN(seq), 1) FROM records").fetchone()[0])
        self.notices: list[str] = [row[0] for row in query("SELECT sentence FROM notices ORDER BY id")]
        self.facts: dict[str, str] = dict(query("SELECT name, value FROM facts").fetchall())
        self._marks = ExporterMarks(self._connection)

    @property
    def consumed(self) -> tuple[str, int] | None:
        """Identity of the journal and the id of its last entry that this run has committed."""
        if "journal" not in self.facts:
            return None
        identity, _, number = self.facts["journal"].partition(" ")
        return identity, int(number)

    def state(self) -> dict[str, bytes]:
        """Return the engine's state as last committed, without what is read entry by entry."""
        with self._using() as connection:
            rows = connection.execute(_STATE, (ONE_BY_ONE, _BEHIND)).fetchall()
            return {key: self._opened(key, value) for key, value in rows}

    def entry(self, key: str) -> bytes | None:
        """Return one entry of the engine's state as last committed; None where there is none, or it cannot be read."""
        try:
            with self._using() as connection:
                row = connection.execute("SELECT value FROM engine WHERE key = ?", (key,)).fetchone()
                return None if row is None else self._opened(key, row[0])
        except StorageError as error:
            _log.error("What is kept of a closed step cannot be read: %s", error)
            return None

    def subscribe(self, name: str, listener: Callable[[], None]) -> None:
        """Call `listener` after each commit that brings records, instead of the one that had this name before."""
        self._listeners[name] = listener

    def mark(self, exporter: str) -> Mark:
        """Return how far `exporter` is."""
        return self._marks.get(exporter)

    def set_mark(self, exporter: str, mark: Mark) -> None:
        """Note how far `exporter` is; durable with the next commit."""
        self._marks.set(exporter, mark)

    def seq_offset(self, exporter: str, position: int) -> int:
        """Return by how much a backend's numbers of records are above those of this file.

        A backend that has more than this file had when it was opened, before the file has given it any, has that from a
        file on another node; as much or less may be of a replay of this one. The first answer is kept, on the disk
        before it is used: what the backend has later is from here.

        Args:
            exporter: its name.
            position: up to which `seq` its backend has everything.
        """
        fact = f"ahead {exporter}"
        if fact not in self.facts:
            # A rescue may have lost the marks: what the backend has then may be from here.
            is_first = exporter not in self._marks and SALVAGED not in self.facts
            is_more = position > max(self._opened_at, self.base)
            shift = str(position - self.base if is_first and is_more else 0)
            with self._using() as connection, transaction(connection):
                connection.execute("INSERT INTO facts VALUES (?, ?)", (fact, shift))
            self.facts[fact] = shift
        return int(self.facts[fact])

    @property
    def unsaved(self) -> bool:
        """Whether a mark is not on the disk yet; any thread may ask."""
        return self._marks.are_unsaved

    def commit(self, commit: Commit) -> None:
        """Make `commit` and all marks durable, then let the exporters have its records.

        Raises:
            StorageError: nothing of it was stored; the same commit may be tried again.
        """
        rows = [encode(record) for record in commit.records]
        numbered = [(record.seq, *row) for record, row in zip(commit.records, rows, strict=True)]
        said = set(self.notices)
        notices = [sentence for sentence in dict.fromkeys(commit.notices) if sentence not in said]
        notices = notices[: max(0, MAX_NOTICES - len(said))]
        facts = dict(commit.facts)
        if commit.records:
            # For a rescue: it says how far the records went, where they cannot be read, or were forgotten.
            facts["seq"] = str(commit.records[-1].seq)
        if commit.consumed is not None:
            facts["journal"] = "{} {}".format(*commit.consumed)
        with self._marks.taken() as marks, self._using() as connection, transaction(connection):
            # Records, engine state, the exporters' marks and the position in the journal in one transaction: whichever
            # moment a kill hits, either all of a request's effects are there or none, and the journal still has it.
            insert(connection, "INSERT INTO records", numbered)
            self._write_state(commit.changes)
            connection.executemany("INSERT OR REPLACE INTO exporters VALUES (?, ?, ?)", marks)
            connection.executemany("INSERT INTO notices (sentence) VALUES (?)", [(text,) for text in notices])
            connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", list(facts.items()))
            if not self._is_signed:
                sign(connection, FORM)
        self._is_signed = True
        self.notices.extend(notices)
        self.facts.update(facts)
        # Only now do exporters see the records: what a backend has must not vanish from the run because the commit
        # failed.
        self._publish(commit.records, rows)

    def read(self, after: int, limit: int) -> Sequence[Record]:
        """Return up to `limit` records with `seq > after`, ascending."""
        with self._using():
            if (recent := self._recent.after(after, limit)) is not None:
                return recent
            return self._decoded(rows_after(self._connection, after, self._dictionaries, limit=limit))

    @property
    def is_intact(self) -> bool:
        """Whether the file still has its name: others may delete or move it."""
        try:
            return identity(self.path) == self._file
        except OSError:
            return True  # nobody can tell now

    def write_anew(self) -> None:
        """Write the file again under its name, with all that it holds.

        Raises:
            StorageError: it cannot be written now; nothing has changed.
        """
        with self._lock:
            self._connection = recreated(self._connection, self.path, FORM)
            self._file = identity(self.path)

    def size(self) -> int:
        """Bytes of the database's pages in use."""
        with self._using():
            pages, free, page = (
                int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_count", "freelist_count", "page_size")
            )
        return (pages - free) * page

    def forget(self, up_to: int) -> None:
        """Delete records up to this `seq`: the disk is full of them."""
        with self._using() as connection, transaction(connection):
            connection.execute("DELETE FROM records WHERE seq <= ?", (up_to,))
            self._recent.forget(up_to)
            self.first_seq = max(self.first_seq, up_to + 1)

    def close(self) -> None:
        """Close the file; marks not yet committed are committed. Safe twice."""
        if self._marks.are_dirty:
            try:
                self.commit(Commit())
            except StorageError as error:  # a backend that cannot tell its position gets some records again
                _log.warning("The exporters' positions are not stored: %s", error)
        with self._lock:
            self._connection.close()

    def _write_state(self, changes: Mapping[str, bytes | None]) -> None:
        kept = [(key, sealed(value)) for key, value in changes.items() if value is not None]
        gone = [key for key, value in changes.items() if value is None]
        insert(self._connection, "INSERT OR REPLACE INTO engine", kept)
        delete(self._connection, "DELETE FROM engine WHERE key", gone)

    def _publish(self, records: Sequence[Record], rows: Sequence[Row]) -> None:
        if not records:
            return
        with self._lock:
            self._recent.add(records, rows)
            self.last_seq = records[-1].seq
        # Without the lock: who is woken reads at once, and takes it.
        for listener in self._listeners.values():
            listener()

    def _opened(self, key: str, value: object) -> bytes:
        """Return an entry of the engine's state without its seal."""
        if not isinstance(value, bytes):
            raise sqlite3.DatabaseError("an entry of the engine's state is of another type than what was written")
        try:
            found = value_of(value, self._dictionaries.get(entry_kind(key), b""))
        except zlib.error as error:
            raise sqlite3.DatabaseError(f"a packed entry of the engine's state cannot be read: {error}") from error
        if found is None:
            raise sqlite3.DatabaseError("an entry of the engine's state is not what was written")
        return found

    def _decoded(self, rows: Iterator[Row]) -> list[Record]:
        """Decode rows until they are enough for one batch."""
        found: list[Record] = []
        size = 0
        try:
            for row in rows:
                record = decode(row)
                size += nbytes(record, row)
                if found and size > _READ_BYTES:
                    break
                found.append(record)
        except sqlite3.Error:
            raise
        except Exception as error:
            raise sqlite3.DatabaseError(f"a record cannot be read: {error!r}") from error
        return found

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._lock, storage_errors(self.path):
                yield self._connection
        except DamagedError:
            suspect(self.path)
            raise
