"""Read a run's records from its folder: the service's own file, or `metrics.jsonl` while the service has that open."""

from __future__ import annotations

import json
import logging
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_ml.exceptions import OtelMLError, VersionError
from otel_ml.explanation import explained
from otel_ml_exporters.records import Record
from otel_ml_service.storage.database import StorageError, is_locked, opened_to_read, require_known
from otel_ml_service.storage.journal_database import ids_in
from otel_ml_service.storage.packed_rows import rows_after
from otel_ml_service.storage.record_codec import decode
from otel_ml_service.storage.run_form import FORM
from otel_ml_service.stored_runs.follow_jsonl import UNDECODABLE, Follower, with_own_file
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there

__all__ = [
    "ExporterMark",
    "Facts",
    "RunInUseError",
    "RunUnreadableError",
    "facts",
    "identity_of",
    "is_live",
    "is_over_within",
    "records",
    "requests_after",
    "stored_facts",
    "whole_records",
]

_log = logging.getLogger(__name__)

_AT_ONCE = 500
"""Records that are read from a database before it is looked whether somebody has written to it meanwhile."""

_LOOK_S = 0.1
"""How often a run that is being recorded is looked at."""


class RunUnreadableError(OtelMLError):
    """A run's folder holds nothing that can be read now."""

    slug = "run-unreadable"


class RunInUseError(RunUnreadableError):
    """A service has the run open, or makes it small."""


@dataclass(frozen=True, slots=True)
class ExporterMark:
    """How far an exporter is: `seq` stored in its backend; reason → values that never will be."""

    name: str
    seq: int
    lost: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the service noted about a run besides its records.

    Attributes:
        journal: identity of the journal from which its newest entries came; empty before the first.
        taken: number of the newest of them.
    """

    last_seq: int
    exporters: tuple[ExporterMark, ...]
    notices: tuple[str, ...]
    journal: str = ""
    taken: int = 0


def records(run: RunFolder) -> Iterator[Record]:
    """Yield the records of a run in the order of `seq`.

    Raises:
        RunUnreadableError: the service has the run open and does not write `metrics.jsonl`, or the file is damaged.
        VersionError: newer code has written the file, and there is no `metrics.jsonl`.
    """
    last = 0
    try:
        for record in whole_records(run):
            last = record.seq
            yield record
    except RunInUseError:
        if not is_there(run.jsonl):
            raise
        # What came before a service opened the run is not yielded again.
        yield from (record for record in Follower(run.jsonl).new_records() if record.seq > last)


def whole_records(run: RunFolder) -> Iterator[Record]:
    """Yield the records of a run that is over, in the order of `seq`: what `metrics.jsonl` has may be less.

    Raises:
        RunInUseError: a service has the run open, or opened it while it was read.
        RunUnreadableError: there is nothing to read, or the file is damaged, and there is no `metrics.jsonl`.
        VersionError: newer code has written the file, and there is no `metrics.jsonl`.
    """
    # The service's own file first: `jsonl` may have been given every tenth step, or have refused some.
    if is_there(run.database):
        yield from _whole(run)
    elif is_there(run.jsonl):
        yield from Follower(run.jsonl).new_records()
    else:
        raise _gone(run)


def _gone(run: RunFolder) -> RunUnreadableError:
    return RunUnreadableError(f"There is nothing to read in {str(run.path)!r}: the run was removed or moved meanwhile.")


def _being_recorded(run: RunFolder) -> str:
    return (
        f"Run {run.id!r} is being recorded, and its exporter 'jsonl' has written nothing yet, or it has none. "
        "Ask again in a few seconds; without jsonl in OTEL_ML_EXPORTERS, when the run is over."
    )


def is_live(run: RunFolder) -> bool:
    """Whether a service has the run open now."""
    if not is_there(run.database) or not is_there(_log_of(run.database)):
        return False  # a service has the log as long as it has the run
    try:
        with opened_to_read(run.database) as connection:
            # Opening alone takes no lock; a statement does.
            connection.execute("SELECT 1 FROM records LIMIT 1").fetchone()
    except sqlite3.DatabaseError as error:  # also one that a kill or a disk has left damaged: nobody has that open
        return is_locked(error)
    return False


def is_over_within(run: RunFolder, timeout: float) -> bool:
    """Wait at most `timeout` seconds until no service has the run open; return whether that is so.

    A service stays some seconds after the end of its job, and longer where a backend is slow.
    """
    deadline = time.monotonic() + timeout
    while is_live(run):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def facts(run: RunFolder) -> Facts | None:
    """Return what the service noted.

    None while it has the run open, where there is only `metrics.jsonl`, where a kill or a full disk left a database
    without tables, or one that cannot be read, and where newer code has written it.
    """
    try:
        return stored_facts(run)
    except RunInUseError:
        return None


def stored_facts(run: RunFolder) -> Facts | None:
    """Return what the service noted; None where it cannot be read, which says nothing of whether it is open.

    Raises:
        RunInUseError: a service has the run open.
    """
    if not is_there(run.database):
        return None
    try:
        require_known(run.database, FORM)
        with opened_to_read(run.database) as connection:
            return _facts(connection.execute)
    except (sqlite3.DatabaseError, StorageError, VersionError, *UNDECODABLE) as error:
        if is_locked(error):
            raise RunInUseError(_being_recorded(run)) from error
        return None


def _facts(query: Callable[[str], sqlite3.Cursor]) -> Facts:
    marks = query("SELECT name, seq, lost FROM exporters ORDER BY name").fetchall()
    said = query("SELECT value FROM facts WHERE name = 'journal'").fetchone()
    journal, _, taken = said[0].partition(" ") if said else ("", "", "")
    return Facts(
        last_seq=int(query("SELECT COALESCE(MAX(seq), 0) FROM records").fetchone()[0]),
        exporters=tuple(ExporterMark(name, int(seq), json.loads(lost)) for name, seq, lost in marks),
        notices=tuple(row[0] for row in query("SELECT sentence FROM notices ORDER BY id")),
        journal=journal,
        taken=int(taken or 0),
    )


def identity_of(journal: Path) -> str:
    """Return the identity of a service's journal; empty where there is none, or it cannot be read."""
    if not is_there(journal):
        return ""
    try:
        with opened_to_read(journal) as connection:
            return "".join(row[0] for row in connection.execute("SELECT name FROM identity"))
    except sqlite3.DatabaseError:
        return ""


def requests_after(journal: Path, number: int) -> int:
    """Return how many requests after `number` a service left in its journal; 0 where it is alive, or cannot be read."""
    if not is_there(journal):
        return 0
    try:
        return len(ids_in(journal, number))
    except (sqlite3.DatabaseError, StorageError):
        return 0


def _whole(run: RunFolder) -> Iterator[Record]:
    """Yield all records: of a database that cannot be read as a whole, the others from `metrics.jsonl`."""
    last = 0
    try:
        for record in _kept(run):
            last = record.seq
            yield record
    except (RunUnreadableError, VersionError) as error:
        if isinstance(error, RunInUseError) or not is_there(run.jsonl):
            raise
        _log.warning("%s", explained(f"{error.sentence} Instead {str(run.jsonl)!r} is read.", "run-unreadable"))
        yield from (record for record in Follower(run.jsonl).new_records() if record.seq > last)


def _kept(run: RunFolder) -> Iterator[Record]:
    """Yield the records of the database; those that had to go at the disk limit are still in `metrics.jsonl`."""
    kept = _from_database(run.database)
    first = next(kept, None)
    # `seq` begins at 1.
    if (first is None or first.seq > 1) and is_there(run.jsonl):
        before = Follower(run.jsonl).new_records()
        yield from (record for record in before if first is None or record.seq < first.seq)
    if first is not None:
        yield first
    yield from kept


def _from_database(path: Path) -> Iterator[Record]:
    last = 0
    while True:
        found, failure = _some_after(path, last)
        yield from found
        if failure is not None:
            raise failure
        if not found:
            return
        last = found[-1].seq


def _some_after(path: Path, seq: int) -> tuple[Sequence[Record], RunUnreadableError | VersionError | None]:
    """Return the next records, all of one state of the file, and why there are no more of them that can be read."""
    folder = path.parent.parent
    found: list[Record] = []
    try:
        require_known(path, FORM)
        with opened_to_read(path) as connection:
            # One by one: those before a row that cannot be read are there when that raises.
            found.extend(with_own_file(decode(row), folder) for row in rows_after(connection, seq, limit=_AT_ONCE))
    except VersionError as error:
        return (), error
    except (sqlite3.DatabaseError, StorageError, zlib.error, *UNDECODABLE) as error:
        if is_locked(error):
            return (), RunInUseError(_being_recorded(RunFolder(folder)))
        if not is_there(path):
            return found, _gone(RunFolder(folder))
        return found, RunUnreadableError(
            f"{str(path)!r} cannot be read ({error}). If the run was not finished, `otel-ml recover` saves what it can."
        )
    return found, None


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")
