"""Make the file of a run that has ended small: every row stays, packed, and the room that is free goes.

Killed at any moment, the file is whole: some rows are packed and others not, and both are read. The next end goes on.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from otel_ml.exceptions import VersionError
from otel_ml_service.storage.checksum import ONE_BY_ONE, unsealed
from otel_ml_service.storage.database import (
    StorageError,
    is_signed,
    open_database,
    require_known,
    storage_errors,
    transaction,
)
from otel_ml_service.storage.packed_rows import Dictionaries, dictionaries_of, entry_kind, packed, packed_entry
from otel_ml_service.storage.run_form import FORM

__all__ = ["WORTH_IT_BYTES", "shrink"]

_log = logging.getLogger(__name__)

WORTH_IT_BYTES = 2**20
"""Size of a file from which it is made smaller."""

_AT_ONCE = 500
"""Rows of one transaction, after which it is asked whether to stop: some 20 ms, 1 s where each has 64 KB of spans."""

_SAMPLE_ROWS, _SAMPLED, _SAMPLE_BYTES = 1_000, 16, 32 * 1024
"""Rows of a kind from which it gets a dictionary, how many are in that, and its size: zlib looks back no further."""

_SMALL = 64
"""Bytes that are not worth packing: what zlib adds is 12."""

_INSTRUCTIONS = 100_000
"""Of SQLite, between two questions whether to stop: some milliseconds."""

_KINDS = f"{ONE_BY_ONE}points", f"{ONE_BY_ONE}closed", "unit"
"""Of entries of the engine's state: there are many of these."""

Change = tuple[object, "bytes | None"]
"""Key of a row, and what it is packed to; None where it stays as it is."""


def shrink(path: Path, is_stopped: Callable[[], bool]) -> None:
    """Pack the rows of a `run.db` that nobody has open, and give back what is free of the file.

    What is not worth it, has an older form, is damaged, or finds no room, stays as it is.

    Args:
        path: of the file.
        is_stopped: is asked often; once it says so, what is done by then stays.
    """
    try:
        if not path.exists() or path.stat().st_size < WORTH_IT_BYTES:
            return
        before = path.stat()
        require_known(path, FORM)
        with closing(open_database(path, FORM)) as connection, storage_errors(path):
            # Nothing new is written: what a power cut takes of this is there as it was before.
            connection.execute("PRAGMA synchronous=NORMAL")
            if is_signed(connection, FORM):
                _pack(connection, is_stopped)
                _give_back(connection, is_stopped)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # nothing new was recorded
    except (StorageError, VersionError, OSError) as error:
        _log.info("%s stays as large as it is: %s", path, error)


def _pack(connection: sqlite3.Connection, is_stopped: Callable[[], bool]) -> None:
    known = _dictionaries(connection)

    def records(after: object) -> Sequence[Change]:
        return _records(connection, after, known)

    def entries(after: object) -> Sequence[Change]:
        return _entries(connection, after, known)

    _replace(connection, "UPDATE records SET record = ? WHERE seq = ?", records, 0, is_stopped)
    _replace(connection, "UPDATE engine SET value = ? WHERE key = ?", entries, "", is_stopped)


def _replace(
    connection: sqlite3.Connection,
    statement: str,
    changes_after: Callable[[object], Sequence[Change]],
    after: object,
    is_stopped: Callable[[], bool],
) -> None:
    """Write what rows are packed to, some in each transaction."""
    while not is_stopped() and (changes := changes_after(after)):
        with transaction(connection):
            connection.executemany(statement, [(content, key) for key, content in changes if content is not None])
        after = changes[-1][0]


def _records(connection: sqlite3.Connection, after: object, known: Dictionaries) -> Sequence[Change]:
    query = "SELECT seq, kind, record FROM records WHERE seq > ? ORDER BY seq LIMIT ?"
    return [
        (seq, _smaller(record.encode(), known.get(kind, b"")) if isinstance(record, str) else None)
        for seq, kind, record in connection.execute(query, (after, _AT_ONCE))
    ]


def _smaller(content: bytes, dictionary: bytes) -> bytes | None:
    found = packed(content, dictionary) if len(content) > _SMALL else content
    return found if len(found) < len(content) else None


def _entries(connection: sqlite3.Connection, after: object, known: Dictionaries) -> Sequence[Change]:
    query = "SELECT key, value FROM engine WHERE key > ? ORDER BY key LIMIT ?"
    found = connection.execute(query, (after, _AT_ONCE))
    return [(key, _smaller_entry(key, stored, known)) for key, stored in found]


def _smaller_entry(key: str, stored: bytes, known: Dictionaries) -> bytes | None:
    value = unsealed(stored)
    if value is None or len(value) <= _SMALL:  # packed already, damaged, or small
        return None
    found = packed_entry(value, known.get(entry_kind(key), b""))
    return found if len(found) < len(stored) else None


def _dictionaries(connection: sqlite3.Connection) -> Dictionaries:
    """Return a dictionary for each kind of which there are many; what is packed needs those that there are."""
    known = dictionaries_of(connection)
    fresh = {kind: sample for kind, sample in _samples(connection) if kind not in known}
    connection.executemany("INSERT INTO dictionaries VALUES (?, ?)", list(fresh.items()))
    return {**known, **fresh}


def _samples(connection: sqlite3.Connection) -> Iterator[tuple[str, bytes]]:
    # The newest rows: they have the names that the run had come to use.
    newest = "SELECT record FROM records WHERE kind = ? ORDER BY seq DESC LIMIT ?"
    for (kind,) in connection.execute("SELECT DISTINCT kind FROM records").fetchall():
        rows = connection.execute(newest, (kind, _SAMPLE_ROWS))
        yield from _sample(kind, (row.encode() for (row,) in rows if isinstance(row, str)))
    newest = "SELECT value FROM engine WHERE key > ? AND key < ? ORDER BY key DESC LIMIT ?"
    for kind in _KINDS:
        rows = connection.execute(newest, (f"{kind}/", _behind(f"{kind}/"), _SAMPLE_ROWS))
        yield from _sample(kind, filter(None, (unsealed(value) for (value,) in rows)))


def _sample(kind: str, rows: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield a dictionary, which is some of the rows; nothing where there are few."""
    found = list(islice(rows, _SAMPLE_ROWS))
    if len(found) == _SAMPLE_ROWS:
        # Of large rows the older ones of the sample stay: rows come out within 1 % of the same size either way.
        yield kind, b"".join(found[:: _SAMPLE_ROWS // _SAMPLED])[-_SAMPLE_BYTES:]


def _behind(prefix: str) -> str:
    """Return the first key behind all that begin with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _give_back(connection: sqlite3.Connection, is_stopped: Callable[[], bool]) -> None:
    """Write the file anew without what is free of it, or leave it."""
    # Once the handler returns true SQLite gives the statement up, raises, and leaves the file as it was.
    connection.set_progress_handler(is_stopped, _INSTRUCTIONS)
    try:
        connection.execute("VACUUM")
    except sqlite3.OperationalError:
        if not is_stopped():
            raise
