"""Rows of a run that has ended, compressed one by one: each can still be read, changed and saved alone.

A row of a few hundred bytes hardly compresses by itself, and its neighbors say the same names: zlib is given some rows
of the same kind beforehand. They are in the table `dictionaries`, and written once: every packed row refers to them.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Mapping

from otel_ml_service.storage.checksum import ONE_BY_ONE, inverted, sealed, unsealed
from otel_ml_service.storage.record_codec import Row

__all__ = [
    "Dictionaries",
    "dictionaries_of",
    "entry_kind",
    "packed",
    "packed_entry",
    "rows_after",
    "text_of",
    "unpacked",
    "value_of",
]

Dictionaries = Mapping[str, bytes]
"""Kind of a row → what zlib is told beforehand."""

# zlib's own defaults: they have to be said, because the dictionary is the last argument.
_LEVEL, _WINDOW_BITS, _MEMORY = 6, 15, 8


def packed(content: bytes, dictionary: bytes) -> bytes:
    """Return `content` in zlib's own form, which holds checksums of the content and of the dictionary.

    Examples:
        >>> names = b'{"axis":"step","values":{"loss":'
        >>> row = b'{"axis":"step","values":{"loss":0.25}}'
        >>> unpacked(packed(row, names), names) == row, len(packed(row, names)) < len(row)
        (True, True)
    """
    how = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY, zlib.Z_DEFAULT_STRATEGY, dictionary)
    return how.compress(content) + how.flush()


def unpacked(content: bytes, dictionary: bytes) -> bytes:
    """Return what was packed.

    Raises:
        zlib.error: it is damaged, or was packed with another dictionary.
    """
    how = zlib.decompressobj(zdict=dictionary)
    found = how.decompress(content)
    if not how.eof:
        raise zlib.error("the end is missing")
    return found


def packed_entry(value: bytes, dictionary: bytes) -> bytes:
    """Return a value of the engine's state as it is stored when it is packed: its checksum says so."""
    return inverted(sealed(packed(value, dictionary)))


def value_of(stored: bytes, dictionary: bytes) -> bytes | None:
    """Return a value of the engine's state, packed or not; None where it is not the one that was stored."""
    plain = unsealed(stored)
    if plain is not None:
        return plain
    content = unsealed(inverted(stored))
    return None if content is None else unpacked(content, dictionary)


def entry_kind(key: str) -> str:
    """Return under which kind the dictionary of an entry of the engine's state is found.

    Examples:
        >>> entry_kind("disk/points/0000000012/0")
        'disk/points'
        >>> entry_kind("unit/12")
        'unit'
    """
    return "/".join(key.split("/")[: 2 if key.startswith(ONE_BY_ONE) else 1])


def dictionaries_of(connection: sqlite3.Connection) -> Dictionaries:
    """Return what the rows of a file were packed with; nothing where no version wrote that can."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'dictionaries'").fetchone() is None:
        return {}
    return dict(connection.execute("SELECT kind, content FROM dictionaries").fetchall())


def rows_after(
    connection: sqlite3.Connection, seq: int, dictionaries: Dictionaries | None = None, *, limit: int = -1
) -> Iterator[Row]:
    """Yield the records behind `seq` as they were before they were packed, ascending.

    Args:
        connection: to a `run.db`.
        seq: of the last record that is not wanted.
        dictionaries: of the file, where they are known already.
        limit: how many; negative for all.

    Raises:
        sqlite3.DatabaseError, zlib.error: a row cannot be read.
    """
    known = dictionaries_of(connection) if dictionaries is None else dictionaries
    query = "SELECT kind, record, media FROM records WHERE seq > ? ORDER BY seq LIMIT ?"
    for kind, record, media in connection.execute(query, (seq, limit)):
        yield kind, text_of(record, known.get(kind, b"")), media


def text_of(record: str | bytes, dictionary: bytes) -> str:
    """Return the JSON text of a record, which is stored as text where it is not packed."""
    return record if isinstance(record, str) else unpacked(record, dictionary).decode()
