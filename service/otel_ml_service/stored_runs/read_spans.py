"""Read a run's records with all of its spans: those that `records` lacks are lines of `spans.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from otel_ml_exporters.json_text import json_value
from otel_ml_exporters.records import Record, SpanBatch
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.stored_runs.follow_jsonl import UnreadableLineError, opened_file
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["SpanRow", "records_and_spans"]

SpanRow: TypeAlias = "dict[str, Any]"
"""A span as JSON has it: the keys are those of `Span`."""

_OPTIONAL_TEXT, _OPTIONAL_NUMBER = (str, type(None)), (int, type(None))
_KEYS: Sequence[tuple[str, Any]] = (
    ("trace_id", str),
    ("span_id", str),
    ("parent_id", _OPTIONAL_TEXT),
    ("name", str),
    ("start_ns", int),
    ("end_ns", int),
    ("role", str),
    ("rank", int),
    ("axis", _OPTIONAL_TEXT),
    ("step", _OPTIONAL_NUMBER),
    ("attributes", dict),
    ("status", str),
)


def records_and_spans(run: RunFolder) -> Iterator[SpanRow | Record]:
    """Yield each span of a run once, and its other records in the order of `seq`.

    The service keeps a run that goes on to itself, and what exceeds the disk limit leaves its file: then `spans.jsonl`
    has the spans. Where a service was killed, or has no exporter `jsonl`, only its file has them. Both are read.

    Raises:
        RunUnreadableError, UnreadableLineError, VersionError: as `records`.
    """
    last, path = 0, run.jsonl.with_name("spans.jsonl")
    for number, line in enumerate(_lines(path), 1):
        row = _row(line, f"{str(path)!r}, line {number}")
        last = row.pop("seq", last)
        yield row
    for record in records(run):
        if not isinstance(record, SpanBatch):
            yield record
        elif record.seq > last:
            for text in SpanLines.of(record.spans).lines:
                yield _row(text, f"{str(run.database)!r}, record {record.seq}")


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file; the last one may be torn, or be written now."""
    try:
        with opened_file(path) as file:
            yield from (line for line in file if line.endswith(b"\n"))
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnreadableLineError(f"{str(path)!r} cannot be read: {error.strerror}.") from error


def _row(line: bytes | str, where: str) -> SpanRow:
    try:
        row: SpanRow = json_value(line)
        if all(isinstance(row[name], expected) for name, expected in _KEYS):
            return row
    except (ValueError, TypeError, KeyError):
        pass
    raise UnreadableLineError(
        f"{where}: {line[:60]!r} is not a span. Expected a JSON object with {', '.join(name for name, _ in _KEYS)}. "
        "Remove the line to read the others."
    )
