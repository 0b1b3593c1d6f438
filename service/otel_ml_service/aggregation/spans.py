"""Finished spans, each once: ours have consecutive ids, others' are remembered for a while."""

from __future__ import annotations

import itertools

from otel_ml.wire.attributes import TIMER_LEVEL
from otel_ml_exporters.records import Span, SpanBatch
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.intervals import IntervalSet
from otel_ml_service.aggregation.observation import Spans
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.writer_state import WriterState

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
        self._pending: list[SpanLines] = []
        self.seen: dict[int, IntervalSet] = {}
        self.changed: set[int] = set()
        self.delivered = 0
        self.duplicates = 0

    def take(self, writer: WriterState, batch: Spans) -> None:
        """Take the spans that are new."""
        if batch.timers:
            fresh = self._new_timers(writer.number, batch)
        else:
            fresh = SpanLines.of(span for span in batch.spans if self._new(writer.number, span))
        self.duplicates += len(batch.spans) - len(fresh)
        self.delivered += len(fresh)
        self._pending.append(fresh)
        self._run.newest_spans.take(writer, fresh)

    def emit(self) -> None:
        """Emit what came since the last time, as one batch."""
        pending, self._pending = SpanLines.joined(self._pending), []
        if pending:
            self._run.output.emit(SpanBatch, spans=pending)

    def restore(self, delivered: int, duplicates: int) -> None:
        """Go on with the counts of an earlier service."""
        self.delivered, self.duplicates = delivered, duplicates

    def _new_timers(self, writer: int, batch: Spans) -> SpanLines:
        seen, spans, ids = self._seen_of(writer), SpanLines.of(batch.spans), batch.timers
        if not isinstance(ids, range) or not seen.go_on(ids.start, len(ids)):
            # Timers inside of others end before them, and have higher ids.
            are_new = list(map(seen.add, ids))
            if not all(are_new):
                spans = SpanLines(list(itertools.compress(spans.lines, are_new)))
        seen.forget_lowest(MAX_GAPS)
        return spans

    def _new(self, writer: int, span: Span) -> bool:
        if TIMER_LEVEL not in span.attributes:
            return self._run.recent.add((span.trace_id, span.span_id), self._run.now)
        seen = self._seen_of(writer)
        # A timer of ours among spans of others: ids of a writer count on.
        fresh = seen.add(int(span.span_id, 16))
        seen.forget_lowest(MAX_GAPS)
        return fresh

    def _seen_of(self, writer: int) -> IntervalSet:
        self.changed.add(writer)
        return self.seen.setdefault(writer, IntervalSet())
