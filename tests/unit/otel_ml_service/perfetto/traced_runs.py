"""Spans and rows of a run, and what its trace has of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from otel_ml_exporters.records import Record, Span, SpanBatch, StepRecord
from otel_ml_service.cli import main
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.perfetto_trace import Trace, read_trace

T0 = 1_795_732_584_000_000_000
MS = 1_000_000


def span(number: int, name: str, begin: int, end: int, *, parent: int | None = None, **given: Any) -> Span:
    """Return a span by milliseconds since the job began; its id is its number."""
    about = {"role": "trainer", "rank": 0, "axis": "step", "step": begin // 100} | given
    ids = {"trace_id": f"{1:032x}", "span_id": f"{number:016x}", "parent_id": parent and f"{parent:016x}"}
    return Span(**ids, name=name, start_ns=T0 + begin * MS, end_ns=T0 + end * MS, **about)


def steps_of(ranks: int, steps: int) -> list[Span]:
    found: list[Span] = []
    for step in range(steps):
        for rank in range(ranks):
            first, at = len(found) + 1, step * 100
            found += [
                span(first + 1, "forward", at + 2, at + 30 + rank, parent=first, rank=rank),
                span(first + 2, "backward", at + 40, at + 90, parent=first, rank=rank),
                span(first, "step", at, at + 95, rank=rank),
            ]
    return found


def batches(spans: Sequence[Span], *, seq: int = 1, size: int = 7) -> list[Record]:
    return [SpanBatch(seq + n, tuple(spans[at : at + size])) for n, at in enumerate(range(0, len(spans), size))]


def row(seq: int, step: int, values: dict[str, float], **given: Any) -> StepRecord:
    about = {"role": "trainer", "axis": "step", "attempt": 0, "time": T0 / 1e9 + step / 10 + 0.0625} | given
    return StepRecord(seq, step=step, values=values, **about)


def traced(run: RunFolder, *arguments: str) -> Trace:
    file = run.path / "out" / "t.pftrace"
    assert main(["trace", run.id, *arguments, "-o", str(file)]) == 0
    return read_trace(file)


def as_slices(spans: Sequence[dict[str, Any]]) -> list[tuple[object, ...]]:
    rows = ((s["span_id"], s["role"], f"rank {s['rank']}", s["name"], s["start_ns"], s["end_ns"]) for s in spans)
    return sorted(rows)


def of_trace(trace: Trace) -> list[tuple[object, ...]]:
    return sorted((one.notes["span_id"], *one.track[:2], one.name, one.begin_ns, one.end_ns) for one in trace.slices)


def stored_spans(run: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "spans.jsonl").read_text().splitlines()]
