"""What is left of a damaged `run.db`, taken over into the one the run goes on in."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from otel_ml_exporters.records import Record
from otel_ml_service.storage.checksum import ONE_BY_ONE, is_whole
from otel_ml_service.storage.packed_rows import Dictionaries, dictionaries_of, text_of
from otel_ml_service.storage.record_codec import decode
from otel_ml_service.storage.salvage import readable, until_damage

__all__ = ["BASE", "SALVAGED", "UNREADABLE", "SalvagedRecords", "number_anew", "take_over"]

BASE = "base"
"""The fact that holds the `seq` after which a run without engine state goes on."""

SALVAGED = "salvaged"
"""The fact that tells a file that was damaged: which exporters it has served may be forgotten."""

UNREADABLE = "unreadable in the damaged run.db"
"""Why an exporter that had not written a record never will."""

_HIGHEST = 2**62
"""No `seq` is above it: SQLite's numbers end at twice as much."""

_DIGITS = len(str(_HIGHEST))
"""A text of more is not a number of ours; of thousands Python reads none."""

Row = tuple[Any, ...]


class SalvagedRecords(NamedTuple):
    """What became of a damaged file.

    Attributes:
        records: how many could be read.
        missing: records that some exporter had not written and that cannot be read.
    """

    records: int = 0
    missing: int = 0


def take_over(old: sqlite3.Connection | None, new: sqlite3.Connection) -> SalvagedRecords:
    """Copy what can be read; of the engine's state all or nothing, for half a memory would decide wrongly."""
    new.execute("INSERT INTO facts VALUES (?, '')", (SALVAGED,))
    if old is None:
        number_anew(new, 0)
        return SalvagedRecords()
    facts = _facts(old)
    # 0 where that is damaged: then nobody knows how many are missing, and all that can be read are taken.
    last = int(facts.get("seq", "0"))
    new.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", list(facts.items()))
    known = _dictionaries(old)
    new.executemany("INSERT OR REPLACE INTO dictionaries VALUES (?, ?)", list(known.items()))
    new.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", _records(old, last, known))
    kept = {row[0] for row in new.execute("SELECT seq FROM records")}
    marks = list(_marks(old, kept, int(facts.get(BASE, "0")), last))
    new.executemany("INSERT OR REPLACE INTO exporters VALUES (?, ?, ?)", [row for row, _ in marks])
    notices = _rows(old, "SELECT id, sentence FROM notices")
    new.executemany("INSERT OR IGNORE INTO notices VALUES (?, ?)", [row for row in notices if isinstance(row[1], str)])
    if not _take_over_state(old, new):
        number_anew(new, last)
    return SalvagedRecords(len(kept), max((gone for _, gone in marks), default=0))


def _take_over_state(old: sqlite3.Connection, new: sqlite3.Connection) -> bool:
    """Copy the engine's state, which may be larger than memory, and return whether that is all of it.

    But for what it asks for when it needs it, and can do without: closed steps.
    """
    try:
        for key, value in old.execute("SELECT key, value FROM engine"):
            if not isinstance(key, str) or not is_whole(value):
                if isinstance(key, str) and key.startswith(ONE_BY_ONE):
                    continue
                return False
            new.execute("INSERT OR REPLACE INTO engine VALUES (?, ?)", (key, value))
    except sqlite3.DatabaseError:
        return False
    return new.execute("SELECT 1 FROM engine").fetchone() is not None


def number_anew(connection: sqlite3.Connection, last: int) -> None:
    """Note where a run that lost the engine's state goes on to number its records: above all that ever was.

    The clock is far above any count of records, and above itself at an earlier damage.
    """
    base = max(last, int(time.time()))
    connection.execute("DELETE FROM engine")
    connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (BASE, str(base)))


def _records(old: sqlite3.Connection, last: int, known: Dictionaries) -> Iterator[Row]:
    rows = readable(old, "records", "seq, kind, record, media", last or _HIGHEST)
    return (row for row in rows if _decodes(row, known))


def _dictionaries(connection: sqlite3.Connection) -> Dictionaries:
    """Return those that can be read; what was packed with another one cannot be read either."""
    try:
        return dictionaries_of(connection)
    except sqlite3.DatabaseError:
        return {}


def _rows(connection: sqlite3.Connection, query: str) -> list[Row]:
    """Return the rows up to the first damage."""
    rows: list[Row] = []
    with suppress(sqlite3.DatabaseError):
        rows.extend(until_damage(connection, query))
    return rows


def _facts(connection: sqlite3.Connection) -> dict[str, str]:
    rows = _rows(connection, "SELECT name, value FROM facts")
    facts = {name: value for name, value in rows if isinstance(name, str) and isinstance(value, str)}
    for name in ("seq", BASE):
        number = facts.get(name, "0")
        if not number.isdecimal() or len(number) > _DIGITS or int(number) > _HIGHEST:
            del facts[name]
    return facts


def _marks(connection: sqlite3.Connection, kept: set[int], base: int, last: int) -> Iterator[tuple[Row, int]]:
    """Yield the exporters' rows, each with the unreadable records behind its position counted as lost, and how many.

    Up to `base` an earlier rescue has counted them; between the last of those and `base` there never were any.
    """
    rows = _rows(connection, "SELECT name, seq, lost FROM exporters")
    for name, seq, text in rows:
        try:
            lost = dict(json.loads(text))
            gone = _missing(kept, max(int(seq), base), last)
        except (TypeError, ValueError):
            continue  # the backend knows how far it is
        if gone:
            lost[UNREADABLE] = lost.get(UNREADABLE, 0) + gone
        yield (name, seq, json.dumps(lost)), gone


def _missing(kept: set[int], after: int, last: int) -> int:
    """Return how many numbers behind `after`, up to `last`, are not kept; `last` may be anything: it may be damaged."""
    return max(0, last - after) - sum(after < number <= last for number in kept)


def _decodes(row: Row, known: Dictionaries) -> bool:
    seq, kind, text, media = row
    try:
        record: Record = decode((kind, text_of(text, known.get(kind, b"")), media))
    except Exception:  # noqa: BLE001 (whatever the damage made of it, it is not a record)
        return False
    # A record has its number inside, too: under another one it can only have come by damage.
    return bool(record.seq == seq)
