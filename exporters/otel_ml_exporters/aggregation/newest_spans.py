"""The newest spans of every writer: where a finding is looked up when it begins, and only then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from otel_ml_exporters.aggregation.writers import WriterState

__all__ = ["NewestSpans"]

_OF_A_WRITER = 256
"""Ten steps of a job with 20 timers, and more."""

_MAX_LINES = 65_536
"""Of all writers together, about 16 MiB; who was heard longest ago is forgotten first."""


class NewestSpans:
    """Spans as the lines they are stored as, so that keeping them costs a slice for each request."""

    def __init__(self) -> None:
        self._lines: dict[WriterState, tuple[str, ...]] = {}
        self._count = 0

    def take(self, writer: WriterState, lines: Sequence[str]) -> None:
        """Keep the newest of `lines`, the spans of one request."""
        if not lines:
            return
        before = self._lines.pop(writer, ())
        kept = (*before, *lines[-_OF_A_WRITER:])[-_OF_A_WRITER:]
        self._lines[writer] = kept
        self._count += len(kept) - len(before)
        while self._count > _MAX_LINES:
            self._count -= len(self._lines.pop(next(iter(self._lines))))

    def of(self, role: str, rank: int, attempt: int) -> Iterator[str]:
        """Yield what is kept of a rank and its child processes in an attempt, oldest first for each of them."""
        for state, lines in self._lines.items():
            if state.attempt == attempt and state.writer.rank == rank and state.writer.role == role:
                yield from lines
