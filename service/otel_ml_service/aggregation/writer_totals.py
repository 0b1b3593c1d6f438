"""What a status says of all writers: there are thousands, and at each commit those are counted again that changed."""

from __future__ import annotations

from typing import NamedTuple

from otel_ml_service.aggregation.loss_account import recorded_by
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.aggregation.outcome import RunFacts
from otel_ml_service.aggregation.role_ranks import RanksHeard, ranks_heard
from otel_ml_service.aggregation.run_facts import said_by
from otel_ml_service.aggregation.writer_state import WriterState
from otel_ml_service.aggregation.writers import Writers

__all__ = ["WriterTotals"]


class _Membership(NamedTuple):
    """What of a writer tells which ranks there are, and what the run is called."""

    writer: Writer
    native: bool
    attempt: int | None

    @property
    def is_own(self) -> bool:
        return self.native and self.writer.parent is None


class WriterTotals:
    """Owned by one engine; `refresh()` before anything is read, and before `writers.dirty` is emptied.

    Attributes:
        recorded: values that all writers recorded.
        own: how many processes of ours there are, children not counted.
        left: numbers of those that say nothing more.
        unbalanced: numbers of those of which something is under way, or may be lost while the run goes on.
    """

    def __init__(self, writers: Writers) -> None:
        self._writers = writers
        self._members: list[_Membership] = []
        self._recorded: list[int] = []
        self._ranks: RanksHeard | None = None
        self._facts: RunFacts | None = None
        self.recorded = self.own = 0
        self.left: set[int] = set()
        self.unbalanced: set[int] = set()

    def refresh(self) -> None:
        """Count those again that changed since their state was committed."""
        # New ones first, and in their order: `_note_member` and `_note_recorded` append them.
        new = range(len(self._members), len(self._writers))
        for number in (*new, *self._writers.dirty):
            state = self._writers[number]
            self._note_member(number, _Membership(state.writer, state.native, state.attempt))
            self._note_recorded(number, recorded_by(state))
            _put(self.left, number, belongs=state.has_left)
            _put(self.unbalanced, number, belongs=_is_unbalanced(state))

    @property
    def ranks(self) -> RanksHeard:
        """The ranks of the newest attempts."""
        if self._ranks is None:
            self._ranks = ranks_heard(state for state in self._writers if state.native and not state.child)
        return self._ranks

    @property
    def facts(self) -> RunFacts:
        """What they say about the run, but for when it began."""
        if self._facts is None:
            self._facts = said_by(self._writers)
        return self._facts

    def states(self, numbers: set[int]) -> list[WriterState]:
        """Return writers in the order in which they came."""
        return [self._writers[number] for number in sorted(numbers)]

    def _note_member(self, number: int, member: _Membership) -> None:
        known = self._members[number] if number < len(self._members) else None
        if known == member:
            return
        if known is None:
            self._members.append(member)
        else:
            self._members[number] = member
        self.own += member.is_own - (known is not None and known.is_own)
        self._ranks = self._facts = None

    def _note_recorded(self, number: int, recorded: int) -> None:
        if number == len(self._recorded):
            self._recorded.append(0)
        self.recorded += recorded - self._recorded[number]
        self._recorded[number] = recorded


def _is_unbalanced(state: WriterState) -> bool:
    return state.shutdown_message is not None or bool(state.ledger.said_ahead) or state.ledger.is_short


def _put(numbers: set[int], number: int, *, belongs: bool) -> None:
    if belongs:
        numbers.add(number)
    else:
        numbers.discard(number)
