"""What waits for a writer's missing messages: looked at once a batch, for a request brings tens of one writer's."""

from __future__ import annotations

from otel_ml_service.aggregation.loss_account import say_missing
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["Settling"]


class Settling:
    """Ends the waiting of writers that were heard, and of those that have waited for too long."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._heard: set[int] = set()

    def hear(self, writer: WriterState) -> None:
        """Note that something of a writer arrived, a duplicate too: what waited for it may be done now."""
        self._heard.add(writer.number)

    def settle(self) -> None:
        """Look at the writers that were heard since the last time."""
        for number in sorted(self._heard):
            self._settle(self._run.writers[number])
        self._heard.clear()

    def give_up(self) -> None:
        """Wait no more for what has been missing for as long as a step may be late."""
        run = self._run
        for writer in run.writers:
            if writer.gap_since is not None and run.active - writer.gap_since >= run.settings.allowed_lateness_s:
                self._settle(writer)

    def _settle(self, writer: WriterState) -> None:
        run = self._run
        run.writers.dirty.add(writer.number)
        # Every kind of message carries a running number, so each may close the gap that a step of any axis waits for.
        writer.settle_gaps(run.active, run.settings.allowed_lateness_s)
        writer.ledger.settle(writer.floor)
        if writer.ledger.is_short:
            say_missing(run, writer)
        writer.raise_done()
        run.step_streams.dirty.update(writer.attempts.values())
