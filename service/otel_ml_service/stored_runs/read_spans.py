"""Read a run's records with all of its spans: those that `records` lacks are lines of `spans.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

from otel_ml_exporters.json_text import json_value
from otel_ml_exporters.records import Record, Span, SpanBatch
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.stored_runs.follow_jsonl import UnreadableLineError, opened_file
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["SpanRow", "records_and_spans"]

SpanRow: TypeAlias = "dict[str, Any]"
"""A span as JSON has it: the keys are those of `Span`."""

_KEYS = tuple(field.name for field in fields(Span) if field.name not in {"links", "events"})
_TEXT, _NUMBER = (str, type(None)), (int, type(None))


def records_and_spans(run: RunFolder) -> Iterator[SpanRow | Record]:
    """Yield each span of a run once, and its other records in the order of `seq`.

    The service keeps a run that goes on to itself, and what exceeds the disk limit leaves its file: then `spans.jsonl`
    has the spans. Where a service was killed, or has no exporter `jsonl`, only its file has them. Both are read.

    Raises:
        RunUnreadableError, UnreadableLineError, VersionError: as `records`.
    """
    last, path = 0, run.jsonl.with_name("spans.jsonl")
    for number, line in enumerate(_lines(path), 1):
        row = _row(line, path, "line", number)
        last = row.pop("seq", last)
        yield row
    # The text is in the order of `seq`: of what it has, the database is not asked.
    for record in records(run):
        if not isinstance(record, SpanBatch):
            yield record
        elif record.seq > last:
            for text in SpanLines.of(record.spans).lines:
                yield _row(text, run.database, "record", record.seq)


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file; the last one may be torn, or be written now."""
    try:
        with opened_file(path) as file:
            yield from (line for line in file if line.endswith(b"\n"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnreadableLineError(f"{str(path)!r} cannot be read: {error.strerror}.") from error


def _row(line: bytes | str, file: Path, what: str, number: int) -> SpanRow:
    try:
        row: SpanRow = json_value(line)
        if _is_span(row):
            return row
    except (ValueError, TypeError, KeyError):
        pass
    raise UnreadableLineError(
        f"{str(file)!r}, {what} {number}: {line[:60]!r} is not a span. Expected a JSON object with {', '.join(_KEYS)}. "
        "Remove the line to read the others."
    )


def _is_span(row: SpanRow) -> bool:
    # One expression a type, not a loop over the keys: this is asked of each span of a run.
    texts = type(row["trace_id"]) is type(row["span_id"]) is type(row["name"]) is type(row["role"]) is str
    numbers = type(row["start_ns"]) is type(row["end_ns"]) is type(row["rank"]) is int
    optional = isinstance(row["parent_id"], _TEXT) and isinstance(row["step"], _NUMBER)
    place = (row["axis"] is None) == (row["step"] is None) and isinstance(row["axis"], _TEXT)
    return texts and numbers and optional and place and type(row["attributes"]) is dict and type(row["status"]) is str
