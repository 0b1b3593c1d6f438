"""A rank's new incarnation starts where the old one had closed, and the old one was heard a moment ago: which is it?

A launcher restarts a job within a second; two processes may also be given the same rank by mistake. A live old one is
heard again within its heartbeat, so until then nothing is decided: the new one's late points are not amended into what
the old one had closed, and no further step closes there.
"""

from __future__ import annotations

from collections.abc import Iterator

from otel_ml_exporters.aggregation.lanes import Lane, Unit
from otel_ml_exporters.aggregation.run_state import RunState
from otel_ml_exporters.aggregation.writers import WriterState

__all__ = ["Contest"]


class Contest:
    """Knows the incarnations of which it is not decided yet whether they are a restart."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._open: set[int] = set()

    def restore(self) -> None:
        """Find the undecided ones, after the writers were restored."""
        self._open = {writer.number for writer in self._run.writers if writer.contested}

    def open(self, writer: WriterState) -> None:
        """Wait for a sign of life of the incarnation before `writer`."""
        writer.contested = True
        self._open.add(writer.number)

    def holds_lane(self, lane: Lane) -> bool:
        """Whether an undecided writer delivers here."""
        return bool(self._open) and any(lane.number in self._run.writers[number].progress for number in self._open)

    def holds_unit(self, unit: Unit) -> bool:
        """Whether a closed unit holds points of an undecided writer."""
        return bool(self._open) and not self._open.isdisjoint(unit.writers)

    def due(self) -> float | None:
        """Return when the next decision falls, in seconds since the epoch."""
        found = (self._run.writers.predecessor(self._run.writers[number]) for number in self._open)
        moments = [before.alive_at + self._run.settings.heartbeat_s for before in found if before is not None]
        return min(moments, default=None)

    def restarted(self, *, at_end: bool = False) -> Iterator[WriterState]:
        """Yield the writers whose predecessor turned out to be dead; forget those whose predecessor lives.

        Args:
            at_end: the run is over: who was not heard again is dead.
        """
        for number in sorted(self._open):
            writer = self._run.writers[number]
            before = self._run.writers.predecessor(writer)
            is_moot = before is None or before.attempt != writer.attempt or before.replaced_at is None
            is_over = before is not None and (at_end or self._run.is_dead(before))
            if is_moot or is_over:
                self._open.discard(number)
                writer.contested = False
                self._run.writers.dirty.add(number)
                self._run.lanes.dirty.update(writer.lanes.values())
                if not is_moot:
                    yield writer
