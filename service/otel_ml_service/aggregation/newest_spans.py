"""The newest spans of every writer: where a finding is looked up when it begins, and only then."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["NewestSpans"]

_OF_A_WRITER = 256
"""Ten steps of a job with 20 timers, and more; of a request that goes beyond it all are kept, up to twice as many."""

_MAX_LINES = 65_536
"""Of all writers together, about 16 MiB; who was heard longest ago is forgotten first."""


class NewestSpans:
    """Spans as the text they are stored as: to keep them costs as much for a hundred of a request as for one."""

    def __init__(self) -> None:
        self._kept: dict[WriterState, deque[SpanLines]] = {}
        self._counts: dict[WriterState, int] = {}
        self._count = 0

    def take(self, writer: WriterState, spans: SpanLines) -> None:
        """Keep the spans of one request, as long as they are among the newest."""
        if not spans:
            return
        if len(spans) > 2 * _OF_A_WRITER:  # one brings what has waited for minutes
            spans = spans.newest(_OF_A_WRITER)
        kept = self._kept.pop(writer, None) or deque()
        self._kept[writer] = kept  # the last one now
        kept.append(spans)
        self._grow(writer, len(spans))
        # Whole requests: to cut one would be to look for where its lines end.
        while len(kept) > 1 and self._counts[writer] - len(kept[0]) >= _OF_A_WRITER:
            self._grow(writer, -len(kept.popleft()))
        while self._count > _MAX_LINES and len(self._kept) > 1:
            longest_ago = next(iter(self._kept))
            del self._kept[longest_ago]
            self._count -= self._counts.pop(longest_ago)

    def _grow(self, writer: WriterState, count: int) -> None:
        self._counts[writer] = self._counts.get(writer, 0) + count
        self._count += count

    def of(self, role: str, rank: int, attempt: int) -> Iterator[str]:
        """Yield what is kept of a rank and its child processes in an attempt, oldest first for each of them."""
        for state, kept in self._kept.items():
            if state.attempt == attempt and state.writer.rank == rank and state.writer.role == role:
                for spans in kept:
                    yield from spans.lines
