"""Read `spans.jsonl`, which the exporter `jsonl` writes, while a service has the run open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from otel_ml_exporters.records import Span

__all__ = ["spans_in"]


def spans_in(path: Path) -> Iterator[Span]:
    """Yield the spans of a file in its order; a line that is cut, or no span, is left out."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            span = _span_of(line)
            if span is not None:
                yield span


def _span_of(line: bytes) -> Span | None:
    try:
        row = json.loads(line)
        row.pop("seq", None)
        return Span(**row)
    except (ValueError, TypeError, AttributeError):
        return None
