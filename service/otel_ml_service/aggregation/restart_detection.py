"""A rank's new incarnation starts at a step that had closed: was the job restarted, or only this rank, or is it a twin?

A launcher restarts a whole job within a second; a pool of actors gets one of them back; two processes may be given the
same rank by mistake. Who lives is heard within a heartbeat: the old incarnation of a twin, the peers of a rank that
came back. Until then nothing is decided: the new one's late points are not amended into what had closed, and no
further step closes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from otel_ml_service.aggregation.outage import LATE_S
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import Attempt
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["RestartDetection"]


class RestartDetection:
    """Knows the incarnations of which it is not decided yet whether they are a restart."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._open: set[int] = set()

    def restore(self) -> None:
        """Find the undecided ones, after the writers were restored."""
        self._open = {writer.number for writer in self._run.writers if writer.contested}

    def open(self, writer: WriterState) -> None:
        """Wait for a sign of life of the incarnation before `writer`."""
        writer.question_restart()
        self._open.add(writer.number)

    def holds_attempt(self, attempt: Attempt) -> bool:
        """Whether an undecided writer delivers here."""
        return bool(self._open) and any(attempt.number in self._run.writers[number].progress for number in self._open)

    def is_open(self, writer: int) -> bool:
        """Whether it is not decided yet where the points of a writer belong."""
        return writer in self._open

    def holds_window(self, window: StepWindow) -> bool:
        """Whether a closed window holds points of an undecided writer."""
        return bool(self._open) and not self._open.isdisjoint(window.writers)

    def undecided_in(self, window: StepWindow) -> list[int]:
        """Return the undecided writers of which a window holds points."""
        return sorted(self._open & window.writers) if self._open else []

    def due(self) -> float | None:
        """Return when the next decision may fall, in seconds since the epoch."""
        if not self._open:
            return None
        run, heartbeat_s = self._run, self._run.settings.heartbeat_s
        moments: list[float] = []
        for writer in (run.writers[number] for number in self._open):
            before = run.writers.predecessor(writer)
            awaited = [before] if before is not None else []
            awaited += self._peers(writer, lambda peer: peer.alive_at + heartbeat_s > run.now)
            moments += [peer.alive_at + heartbeat_s for peer in awaited]
            moments.append(writer.since + heartbeat_s)
        # All of these may be over and nothing decided: who is dead, and what may be late, is told by other clocks
        # (`is_open_question()`). It is looked at again some times a heartbeat.
        return min((moment for moment in moments if moment > run.now), default=run.now + heartbeat_s / 4)

    def is_open_question(self, writer: WriterState, before: WriterState) -> bool:
        """Whether it takes time to see if `writer`, which takes the place of `before`, belongs to a new attempt."""
        return (
            not self._run.is_dead(before)
            or self._run.may_be_late(before, self._run.settings.heartbeat_s)  # what it left in its spool
            or any(True for _ in self._peers(writer, self._may_live))
            or any(True for _ in self._witnesses(writer))  # dead by now, too, but it went on: of a pool, one by one
        )

    def _may_live(self, peer: WriterState) -> bool:
        return self._run.may_be_late(peer, LATE_S) or not self._run.is_dead(peer)

    def decided(self, *, at_end: bool = False) -> Iterator[tuple[WriterState, bool]]:
        """Yield the writers of which it is known by now whether they began a new attempt, and that.

        Args:
            at_end: the run is over: who was not heard again is dead.
        """
        for number in sorted(self._open):
            verdict = self._verdict(self._run.writers[number], at_end=at_end)
            if verdict is None:
                continue
            writer = self._run.writers[number]
            self._open.discard(number)
            writer.settle_restart()
            self._run.writers.dirty.add(number)
            # What it delivers to was held while this was open: look at it again.
            self._run.step_streams.dirty.update(writer.attempts.values())
            yield writer, verdict

    def replace_dead(self, attempt: Attempt, window: StepWindow) -> None:
        """Let the newest incarnation of a rank replace those that died in the step, or did it before a restart."""
        writers = self._run.writers
        by_rank: dict[int, list[int]] = {}
        for number in sorted(window.points):
            if not writers[number].child:
                by_rank.setdefault(writers[number].writer.rank, []).append(number)
        for numbers in by_rank.values():
            # Both incarnations of a rank may have points in this step. Adding them up would count the rank twice.
            if len(numbers) > 1:  # heard in one order, born perhaps in another
                ages = writers.incarnations(writers[numbers[0]])
                numbers.sort(key=lambda number: ages.index(number) if number in ages else len(ages))
            for number, next_number in pairwise(numbers):
                if self._gives_way(writers[number], writers[next_number]):
                    self._run.supersede(attempt, window.remove_of(number))

    def _gives_way(self, writer: WriterState, successor: WriterState) -> bool:
        # Two processes that both live under one rank are a mistake of the job, which is reported. Dropping one of them
        # would hide it, so both count.
        if writer.replaced_at is None:  # it lived on: a twin
            return False
        return not _ended_well(writer) or self._was_done_again(writer, successor)

    def _was_done_again(self, finished: WriterState, successor: WriterState) -> bool:
        """Whether the job was started again for another rank that died, after this one had ended well.

        Then both were started together, and nobody lives on. A worker of a pool counts beside its successor.
        """
        peers = [peer for peer in self._run.writers if self._was_with(peer, finished)]
        return any(self._died_with(peer, finished, successor) for peer in peers) and not any(
            self._went_on(peer, finished, successor) for peer in peers
        )

    def _was_with(self, peer: WriterState, writer: WriterState) -> bool:
        """Whether a peer is another rank of its role and attempt."""
        same = peer.attempt == writer.attempt and peer.writer.role == writer.writer.role
        return same and peer.native and not peer.child and peer.writer.rank != writer.writer.rank

    def _died_with(self, peer: WriterState, finished: WriterState, successor: WriterState) -> bool:
        """Whether a peer died, and its successor was started together with that of one that had finished."""
        if peer.replaced_at is None or _ended_well(peer):
            return False
        writers = self._run.writers
        after = writers.replacement(peer)
        return after is not None and writers.began_after(successor, peer) and writers.began_after(after, finished)

    def _went_on(self, peer: WriterState, finished: WriterState, successor: WriterState) -> bool:
        """Whether a peer that lived with one that finished lives, or lived, beside the successor of that."""
        began_after = self._run.writers.began_after
        may_live = peer.newest and not peer.has_left and not self._run.is_dead(peer)
        return not began_after(peer, finished) and (may_live or not began_after(successor, peer))

    def _verdict(self, writer: WriterState, *, at_end: bool) -> bool | None:
        """Return whether `writer` began a new attempt; None while that is open."""
        before = self._run.writers.predecessor(writer)
        if before is None or before.attempt != writer.attempt or not writer.newest:
            return False
        # Other ranks of a restarted job are a moment behind. Once each rank that still lives has a successor, it hangs.
        # Deciding too early is worse than late: an attempt that is opened for a single restarted rank throws away the
        # steps of all others that go on.
        is_early = not at_end and self._run.now - writer.since < self._run.settings.heartbeat_s
        if before.replaced_at is None:
            return None if is_early else False  # a twin
        if any(True for _ in self._witnesses(writer)):
            return None if is_early else False  # the others go on: it came back into their attempt
        if not at_end and self.is_open_question(writer, before):
            return None
        return True

    def _outlives(self, peer: WriterState, writer: WriterState) -> bool:
        """Whether a rank lived on after `writer` had begun; both tell it by one clock, where they share a machine.

        Elsewhere a shutdown message may only have been late.
        """
        if peer.boot_alive and peer.writer.boot == writer.writer.boot:
            return peer.boot_alive > writer.writer.born
        return peer.shutdown_message is None and peer.alive_at > writer.since

    def _peers(self, writer: WriterState, holds: Callable[[WriterState], bool]) -> Iterator[WriterState]:
        """Yield the other ranks of its role that began before its predecessor died, and were not started again."""
        return self._others(writer, lambda peer: peer.newest and peer.shutdown_message is None and holds(peer))

    def _witnesses(self, writer: WriterState) -> Iterator[WriterState]:
        """Yield those whose life says that the job goes on, also of one that was itself replaced later.

        One that hangs while its rank is started again says nothing: it lives beside its successor.
        """
        lived_on = self._others(writer, lambda peer: self._outlives(peer, writer))
        return (peer for peer in lived_on if peer.newest or self._died_before_its_successor(peer))

    def _died_before_its_successor(self, peer: WriterState) -> bool:
        successor = self._run.writers.successor(peer)
        return successor is not None and self._run.writers.began_after(successor, peer)

    def _others(self, writer: WriterState, holds: Callable[[WriterState], bool]) -> Iterator[WriterState]:
        """Yield the incarnations of other ranks of its role that began before its predecessor died, where `holds`.

        That is asked first: it is false for nearly all of a job with thousands of ranks that was started again.
        """
        before = self._run.writers.predecessor(writer)
        if before is None:
            return
        for peer in self._run.writers:
            if (
                peer.attempt == before.attempt
                and peer.writer.role == writer.writer.role
                and peer is not writer
                and peer is not before
                and peer.native
                and not peer.child
                and holds(peer)
                and not self._run.writers.began_after(peer, before)
            ):
                yield peer


def _ended_well(writer: WriterState) -> bool:
    return writer.shutdown_message is not None and writer.shutdown_message.status == "finished"
