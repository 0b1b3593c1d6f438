"""Read `spans.jsonl`, also while it grows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO

from otel_ml_exporters.records import Span
from otel_ml_exporters.span_lines import span_of
from otel_ml_service.stored_runs.follow_jsonl import is_another

__all__ = ["SLACK_NS", "SpanFollower", "newest_spans", "offset_of", "span_in"]

_TAIL = 16 * 2**20
"""Bytes of the end of the file that are read: older steps are looked up when somebody asks for them."""

SLACK_NS = 60_000_000_000
"""By how much lines may be out of order: ranks send their spans some time after these ended."""


class SpanFollower:
    """Hands out each span once, from some way before the end of the file on. What is not a span is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: os.stat_result | None = None
        self._offset = -1

    @property
    def is_of_another_file(self) -> bool:
        """Whether the file was replaced or cut since it was read: a new follower has what is there now."""
        return is_another(self._path, self._file, self._offset)

    def new_spans(self) -> list[Span]:
        """Return what was written since the last call; a line that is not complete yet comes the next time."""
        if not self._path.is_file():
            return []
        with self._path.open("rb") as file:
            self._file = os.fstat(file.fileno())
            if self._offset < 0:
                # Likely inside of a line, whose rest is not a span, and is left out.
                self._offset = max(0, self._file.st_size - _TAIL)
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [span for line in whole.splitlines() if (span := span_in(line)) is not None]


def newest_spans(path: Path) -> list[Span]:
    """Return the spans at the end of what the exporter `jsonl` wrote."""
    return SpanFollower(path).new_spans()


def offset_of(file: IO[bytes], size: int, time_ns: int) -> int:
    """Return where the first line begins that ends at a time or later."""
    low, high = 0, size
    # Lines are in the order in which they arrived, so what is found is right but for that: who asks begins some way
    # before (`SLACK_NS`).
    while high - low > _NEAR:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()  # the rest of a line
        begins = file.tell()
        ended = next(filter(None, map(_end_of, iter(file.readline, b""))), None)
        if ended is None or ended >= time_ns:
            high = middle
        else:
            low = begins
    return low


_NEAR = 64 * 1024
"""Bytes before the place that are read for nothing."""


def _end_of(line: bytes) -> int | None:
    _, _, after = line.partition(b'"end_ns":')
    # A time in nanoseconds has 19 digits at most; a space may stand before them.
    digits = after[:20].partition(b",")[0].strip()
    return int(digits) if digits.isdigit() else None


def span_in(line: bytes) -> Span | None:
    """Return the span of a line; None where it is not one."""
    try:
        row = json.loads(line)
        row.pop("seq", None)
        span = span_of(row)
        names, numbers = (span.name, span.role), (span.start_ns, span.end_ns, span.rank)
        is_whole = all(isinstance(name, str) for name in names) and all(isinstance(one, int) for one in numbers)
    except (ValueError, TypeError, AttributeError):
        return None
    return span if is_whole else None
