"""Finished spans, each once: ours have consecutive ids, others' are remembered for a while."""

from __future__ import annotations

from otel_ml.wire.attributes import TIMER_LEVEL
from otel_ml_exporters.aggregation.intervals import IntervalSet
from otel_ml_exporters.aggregation.observation import Spans
from otel_ml_exporters.aggregation.run_state import RunState
from otel_ml_exporters.aggregation.writers import WriterState
from otel_ml_exporters.records import Span, SpanBatch

__all__ = ["SpanIntake"]

MAX_GAPS = 1024
"""Intervals of ids kept a writer; a Collector that reorders leaves a few."""


class SpanIntake:
    """Passes spans on, de-duplicated by id.

    Attributes:
        seen: writer → ids of its timers.
        changed: writers whose ids changed since they were committed.
    """

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._pending: list[Span] = []
        self.seen: dict[int, IntervalSet] = {}
        self.changed: set[int] = set()
        self.delivered = 0
        self.duplicates = 0

    def take(self, writer: WriterState, batch: Spans) -> None:
        """Take the spans that are new."""
        fresh = [span for span in batch.spans if self._new(writer.number, span)]
        self.duplicates += len(batch.spans) - len(fresh)
        self.delivered += len(fresh)
        self._pending += fresh

    def emit(self) -> None:
        """Emit what came since the last time, as one batch."""
        if self._pending:
            self._run.output.emit(SpanBatch, spans=tuple(self._pending))
            self._pending = []

    def _new(self, writer: int, span: Span) -> bool:
        if TIMER_LEVEL not in span.attributes:
            return self._run.recent.add((span.trace_id, span.span_id), self._run.now)
        seen = self.seen.setdefault(writer, IntervalSet())
        self.changed.add(writer)
        fresh = seen.add(int(span.span_id, 16))
        seen.forget_lowest(MAX_GAPS)
        return fresh
