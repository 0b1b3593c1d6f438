"""Read a run's records with all of its spans: those that `records` lacks are lines of `spans.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from otel_ml_exporters.records import Record, SpanBatch
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.stored_runs.follow_jsonl import UnreadableLineError
from otel_ml_service.stored_runs.read_records import records
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["SpanRow", "records_and_spans"]

SpanRow: TypeAlias = "dict[str, Any]"
"""A span as JSON has it: the keys are those of `Span`."""


def records_and_spans(run: RunFolder) -> Iterator[SpanRow | Record]:
    """Yield each span of a run once, and its other records in the order of `seq`.

    The service keeps a run that goes on to itself, and what exceeds the disk limit leaves its file: then `spans.jsonl`
    has the spans. Where a service was killed, or has no exporter `jsonl`, only its file has them. Both are read.

    Raises:
        RunUnreadableError, UnreadableLineError, VersionError: as `records`.
    """
    last = 0
    for row in _rows(run.jsonl.with_name("spans.jsonl")):
        last = row.pop("seq", last)
        yield row
    for record in records(run):
        if not isinstance(record, SpanBatch):
            yield record
        elif record.seq > last:
            yield from map(orjson.loads, SpanLines.of(record.spans).lines)


def _rows(path: Path) -> Iterator[SpanRow]:
    """Yield the lines of a file; the last one may be torn, or be written now."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    yield _row(path, number, line)
    except FileNotFoundError:
        return


def _row(path: Path, number: int, line: bytes) -> SpanRow:
    try:
        row: Mapping[str, Any] = orjson.loads(line)
        return {**row, "start_ns": int(row["start_ns"]), "end_ns": int(row["end_ns"]), "span_id": str(row["span_id"])}
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableLineError(
            f"{str(path)!r}, line {number}: {line[:60]!r} is not a span ({error!r}). Expected one JSON object a line "
            "with span_id, start_ns, end_ns. Remove the line to read the others."
        ) from error
