"""A run's history by its columns (`metrics.columns`), where they hold: what is in them is not read as records."""

from __future__ import annotations

import json
import logging
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO

from otel_ml.exceptions import OtelMLError
from otel_ml.wire.columns import Chunk, SeriesKey, believed, beside
from otel_ml.wire.published_name import ascii_spelling, is_own
from otel_ml_exporters.metric_columns import write_columns
from otel_ml_exporters.records import Audio, Image, Record
from otel_ml_service.storage.database import opened_to_read, require_known
from otel_ml_service.storage.packed_rows import rows_after
from otel_ml_service.storage.record_codec import decode
from otel_ml_service.storage.run_form import FORM
from otel_ml_service.stored_runs.follow_jsonl import UNDECODABLE, opened_file, record_of, with_own_file
from otel_ml_service.stored_runs.read_records import is_live, records
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there
from otel_ml_service.stored_runs.run_history import History
from otel_ml_service.stored_runs.shortened_name import is_part_of

__all__ = ["history_of"]

_log = logging.getLogger(__name__)

Note = Callable[[Record], None]

_FAILURES = (sqlite3.DatabaseError, zlib.error, OtelMLError, *UNDECODABLE)

_WORTH_IT_BYTES = 2**20
"""Of `metrics.jsonl` from which columns are written where there are none."""

_MEDIA = {"image": Image.__name__, "audio": Audio.__name__}
"""Kinds that are only counted: each is a file of its own."""


def history_of(run: RunFolder, patterns: Sequence[str] = (), note: Note | None = None) -> History:
    """Return what a run's records amount to.

    Args:
        run: one that is recorded now too.
        patterns: names, parts of names and globs of the metrics whose values are wanted; the other series may be
            empty. All without.
        note: is called with each record that is not a step, and with some of the others, in the order of `seq`.

    Raises:
        RunUnreadableError, UnreadableLineError, VersionError: as `records`.
    """
    if (found := _by_columns(run, patterns, note)) is not None:
        return found
    read = History()
    for record in records(run):
        if note is not None:
            note(record)
        read.add(record)
    return read


def _by_columns(run: RunFolder, patterns: Sequence[str], note: Note | None) -> History | None:
    """Return the history, or None where the columns do not hold, or hardly pay."""
    # Handed on at the end only: where the columns turn out not to hold, all records are read anew, and nothing would be
    # noted twice.
    noted: list[Record] = []
    with suppress(*_FAILURES), ExitStack() as files:
        live = is_live(run)
        # While the run goes on its exporter writes them.
        if not live:
            _write_missing(run)
        text, columns = (files.enter_context(opened_file(path)) for path in (run.jsonl, beside(run.jsonl)))
        reader = _Reader(run.path, text, patterns, noted.append)
        # With a database the run is what that has: columns of every tenth step do not stand for it.
        for chunk in believed(run.jsonl, columns, only_whole=is_there(run.database)):
            reader.take(chunk)
        if not reader.end:
            return None
        from_text = live or not is_there(run.database)
        for record in reader.rest_of_text() if from_text else _rest_of_database(run, reader.last_seq):
            reader.take_record(record)
        if note is not None:
            for record in noted:
                note(record)
        return reader.history
    return None


class _Reader:
    """Puts together a history from chunks of columns, and from the records behind them."""

    def __init__(self, folder: Path, text: BinaryIO, patterns: Sequence[str], note: Note) -> None:
        self.history = History()
        self.end = 0
        self.last_seq = 0
        self._folder = folder
        self._text = text
        self._names = {name for pattern in patterns for name in (pattern, ascii_spelling(pattern))}
        self._patterns = patterns
        self._note = note
        self._wanted: dict[SeriesKey, bool] = {}

    def take(self, chunk: Chunk) -> None:
        read = self.history
        read.rows += chunk.rows
        for time in chunk.times:
            read.began = time if read.began is None or time < read.began else read.began
            read.ended = time if read.ended is None or time > read.ended else read.ended
        for key in chunk.series:
            if self._wants(key):
                column = chunk.column(key)
                read.series[key].update(zip(column.steps, column.values, strict=True))
                read.amendments += 0 if is_own(key.name) else sum(column.corrected)
        # Of other records than steps the columns have only where they are in the text.
        for at, length in chunk.others:
            self._text.seek(at)
            self._take_line(self._text.read(length))
        read.last_seq = self.last_seq = chunk.last_seq
        self.end = chunk.end

    def rest_of_text(self) -> Iterator[Record]:
        self._text.seek(self.end)
        for line in self._text:
            if line.endswith(b"\n"):
                yield record_of(line, self._folder)

    def take_record(self, record: Record) -> None:
        self._note(record)
        self.history.add(record)

    def _take_line(self, line: bytes) -> None:
        kind = json.loads(line)["type"]
        if kind in _MEDIA:
            self.history.others[_MEDIA[kind]] += 1
        else:
            self.take_record(record_of(line, self._folder))

    def _wants(self, key: SeriesKey) -> bool:
        if key not in self._wanted:
            globs = (fnmatchcase(key.name, one) or is_part_of(one, key.name) for one in self._patterns)
            self._wanted[key] = not self._patterns or key.name in self._names or any(globs)
            _ = self.history.series[key]  # that there is one is known, also where nobody asks for it
        return self._wanted[key]


def _write_missing(run: RunFolder) -> None:
    """Write the columns of a run that is over, and was recorded without them."""
    text = run.jsonl
    if text.stat().st_size < _WORTH_IT_BYTES or _is_covered(text):
        return
    try:
        write_columns(text, whole=_is_whole(run))
    except _FAILURES as error:  # a folder that is only read, for example
        _log.debug("No columns of %s: %s", text, error)


def _is_covered(text: Path) -> bool:
    with suppress(OSError), opened_file(beside(text)) as file:
        *_, last = [chunk.end for chunk in believed(text, file)] or [0]
        return text.stat().st_size - last < _WORTH_IT_BYTES
    return False


def _is_whole(run: RunFolder) -> bool:
    """Whether the text lacks nothing that the service's own file has: its exporter may have had every tenth step."""
    if not is_there(run.database):
        return True
    with opened_file(run.jsonl) as text:
        lines = sum(1 for line in text if line.endswith(b"\n"))
    with opened_to_read(run.database) as connection:
        kept, first = connection.execute(
            "SELECT COUNT(*), MIN(seq) FROM records WHERE kind != 'spans' AND seq > 0"
        ).fetchone()
    # Where the disk limit took the first ones, the text has more lines though it may lack some of these.
    return bool(lines >= kept) if first == 1 else False


def _rest_of_database(run: RunFolder, last_seq: int) -> Iterator[Record]:
    """Yield the records that the text has not; nothing may have been left out of it."""
    require_known(run.database, FORM)
    with opened_to_read(run.database) as connection:
        refused = connection.execute("SELECT name FROM exporters WHERE lost != '{}'").fetchall()
        if any(name.partition("/")[0] == "jsonl" for (name,) in refused):
            # One of `_FAILURES`: then the run is read record by record.
            raise ValueError("values of steps are not in the text")
        yield from (with_own_file(decode(row), run.path) for row in rows_after(connection, last_seq))
