"""Which incarnations of a role's ranks lived together, as far as that is known (docs/protocol.md §5.7).

A launcher that counts says it. Where none does, processes of one boot of a machine know by its clock when they began
and when they lived (ADR 0011, rule 7); of others there is only when they were heard.
"""

from __future__ import annotations

from collections.abc import Iterator

from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import StepStream
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["Incarnations"]


class Incarnations:
    """Finds the attempt of a writer that is heard for the first time."""

    def __init__(self, run: RunState) -> None:
        self._run = run

    def attempt_of(self, writer: WriterState, stream: StepStream, step: int) -> int:
        """Return the attempt of a new writer whose first step is `step`: its launcher's count, where there is one.

        Roles restart each for itself: a process that joins one must not fence those of it that go on.
        """
        who = writer.writer
        if who.attempt is not None:
            return self._run.attempts.of(who.attempt)
        writers = self._run.writers
        begun = {
            ordinal
            for stream in self._run.step_streams.streams.values()
            if stream.role == who.role
            for ordinal in stream.attempts
        }
        # There is nothing to choose from, and that is so in nearly every run.
        if len(begun) < 2:
            return max(begun, default=self._run.attempts.newest)
        after = writers.successor(writer)
        if after is None:
            before = writers.predecessor(writer)
        else:
            # Its successor was heard before it, and knows who came before both.
            before = None if after.before is None else writers[after.before]
        ordinal = self._with_its_like(writer, before, stream, step)
        if ordinal is None:
            ordinal = self._by_birth(writer, max(begun))
        if after is None:
            return ordinal
        # Between those of the incarnations of its rank before and after it, whatever others tell.
        first, last = 0 if before is None else before.attempt or 0, after.attempt or 0
        return max(first, min(last, ordinal))

    def contemporaries(self, writer: WriterState, ordinal: int, stream: StepStream, step: int) -> list[WriterState]:
        """Return the writers of its role that began after its predecessor had lived: they are in `attempt`, too.

        Not those that were over before it began: of their life, perhaps, nothing else was heard.
        """
        before, after = self._run.writers.predecessor(writer), self._run.writers.began_after
        if before is None or before.attempt is None or before.attempt >= ordinal:
            return []
        return [
            other
            for other in self._of_role(writer)
            if other.attempt == before.attempt
            and other.writer.attempt == writer.writer.attempt
            and after(other, before)
            and not self._was_over(other, writer, stream, step)
        ]

    def _of_role(self, writer: WriterState) -> Iterator[WriterState]:
        """Yield those of its role that are in an attempt, who was heard last first."""
        role = writer.writer.role
        return (
            other
            for other in reversed(self._run.writers.all)
            if other.attempt is not None and other.writer.role == role and other is not writer
        )

    def _with_its_like(
        self, writer: WriterState, before: WriterState | None, stream: StepStream, step: int
    ) -> int | None:
        """Return the attempt of one that was started together with it.

        Each began after the other's predecessor had lived. One that began at a later step is none: then it is `writer`
        that says where the attempt begins.
        """
        writers = self._run.writers
        is_over = writers.successor(writer) is not None
        for other in self._of_role(writer):
            if other.child or other.writer.rank == writer.writer.rank or not writers.can_compare(writer, other):
                continue
            first = self._first(other, stream)
            if first is None or first > step:
                continue
            # One of the two was over before the other began.
            if (is_over and writers.began_after(other, writer)) or self._was_over(other, writer, stream, step):
                continue
            former = writers.predecessor(other)
            follows = former is None or writers.began_after(writer, former)
            if follows and (before is None or writers.began_after(other, before)):
                return other.attempt
        return None

    def _was_over(self, other: WriterState, writer: WriterState, stream: StepStream, step: int) -> bool:
        """Whether an incarnation of another rank was dead when `writer` began, at `step`.

        After an outage it may be heard later that it lived; one that began at an earlier step did not.
        """
        if not self._run.writers.began_after(writer, other):
            return False
        first = self._first(other, stream)
        return not other.newest or (bool(other.boot_alive) and first is not None and first < step)

    @staticmethod
    def _first(writer: WriterState, stream: StepStream) -> int | None:
        """Return the step at which a writer began on an axis, where anything of that is kept."""
        attempt = writer.attempts.get(stream.axis)
        progress = None if attempt is None else writer.progress.get(attempt)
        return None if progress is None else progress.first

    def _by_birth(self, writer: WriterState, newest: int) -> int:
        """Return the newest attempt of its role of which it is not known that all of it began later.

        One without a successor may live, and what it records would be lost in an older attempt: ranks that are started
        together begin within a heartbeat. A child says of its parent's attempt only what its own birth tells.
        """
        writers = self._run.writers
        together_s = 0.0 if writers.successor(writer) is not None else self._run.settings.heartbeat_s
        begun: list[int] = []
        for other in self._of_role(writer):
            one = writers.parent_of(other) if other.child else other
            if one is None or one.attempt is None or not writers.began_before(writer, one, by_s=together_s):
                begun.append(other.attempt or 0)
        return max(begun, default=newest)
