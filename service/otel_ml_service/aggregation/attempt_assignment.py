"""Which attempt a writer's data belongs to, and what a new attempt does to the old one (docs/protocol.md §5.7)."""

from __future__ import annotations

from collections.abc import Callable

from otel_ml_service.aggregation.incarnations import Incarnations
from otel_ml_service.aggregation.late_points import LatePoints
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.restart_detection import RestartDetection
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import Attempt, StepStream
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["AttemptAssignment"]


class AttemptAssignment:
    """Finds the attempt of (writer, axis).

    Args:
        run: shared state.
        close: closes an attempt's oldest window with what has arrived.
        late: what waits in an attempt's closed windows.
    """

    def __init__(
        self, run: RunState, restart_detection: RestartDetection, close: Callable[[Attempt], None], late: LatePoints
    ) -> None:
        self._run = run
        self._restart_detection = restart_detection
        self._close = close
        self._late = late
        self._incarnations = Incarnations(run)

    def attempt(self, writer: WriterState, axis: str, step: int, seq: int) -> Attempt:
        """Return where (`axis`, `step`) of `writer` goes."""
        number = writer.attempts.get(axis)
        # A message with a lower running number may arrive after the first one: then the writer began at an earlier step
        # than it seemed, and its attempt has to be found again.
        starts = writer.starts(seq)
        if number is not None and not starts:
            return self._run.step_streams.all[number]
        stream = self._run.step_streams.stream(writer.writer.role, axis)
        ordinal = self._attempt(writer, stream, step)
        if writer.attempt is None and not writer.child:
            self._enthrone(writer)
            # Ranks of one restart are heard one by one. Those that came first were put where their predecessors were;
            # now that it is known better they move along.
            others = self._incarnations.contemporaries(writer, ordinal, stream, step)
            if others:
                self._move(others, ordinal, begins=(stream, step))
        elif writer.attempt is not None and ordinal != writer.attempt:
            self._move([writer, *self._incarnations.contemporaries(writer, ordinal, stream, step)], ordinal)
        writer.enter(ordinal)
        return self._enter(writer, stream, ordinal, step)

    def settle(self, *, at_end: bool = False) -> None:
        """Open the attempts of the incarnations that turned out to be restarts."""
        for writer, is_restart in self._restart_detection.decided(at_end=at_end):
            before = self._run.writers.predecessor(writer)
            attempts = [self._run.step_streams.all[number] for number in writer.progress]
            if is_restart:
                # Of its axes the one on which it began at or below what had closed: on others it may go on above that.
                attempt = next((attempt for attempt in attempts if not self._is_beyond(writer, attempt)), attempts[0])
                step = writer.progress[attempt.number].first or 0
                ordinal = self._restart(writer, attempt, step)
                self._move([writer, *self._incarnations.contemporaries(writer, ordinal, attempt.stream, step)], ordinal)
                continue
            for attempt in attempts:
                # What waited as the beginning of another attempt, perhaps, is late data of this one.
                self._late.refuse(attempt, writer.number)
            if before is not None and before.attempt == writer.attempt and before.replaced_at is None:
                self._say_twins(writer)

    @staticmethod
    def _is_beyond(writer: WriterState, attempt: Attempt) -> bool:
        first = writer.progress[attempt.number].first
        return first is None or attempt.last_closed is None or first > attempt.last_closed

    def _enter(self, writer: WriterState, stream: StepStream, ordinal: int, step: int) -> Attempt:
        known = ordinal in stream.attempts
        attempt = self._run.step_streams.attempt(stream, ordinal)
        writer.write_to(stream.axis, attempt.number)
        # Its beginning may arrive late; where nobody counts, it may also be that of a life of which nothing was heard.
        is_earlier = writer.writer.attempt is not None and step < attempt.begins
        if not known or is_earlier:
            self._fence(stream, attempt, step)
        return attempt

    def _attempt(self, writer: WriterState, stream: StepStream, step: int) -> int:
        # A child is not restarted by itself: it goes where its parent is, as soon as that is known.
        if writer.child:
            parent = self._run.writers.parent_of(writer)
            if parent is not None and parent.attempt is not None:
                return parent.attempt
        ordinal = self._incarnations.attempt_of(writer, stream, step) if writer.attempt is None else writer.attempt
        if writer.replaced_at is not None or self._run.writers.successor(writer) is not None:
            return ordinal  # over: its beginning, too, changes nothing that came after it
        before = self._run.writers.predecessor(writer)
        # The first of its rank, or one that is in another attempt than the one before it: there is nothing to decide.
        if before is None or before.attempt != ordinal:
            return ordinal
        attempt = stream.attempts.get(ordinal)
        # Who starts above all that has closed does nothing again, so no attempt begins (docs/protocol.md §5.7).
        if attempt is None or attempt.last_closed is None or step > attempt.last_closed:
            return ordinal
        # Its step had closed here, which alone would mean a restart; but a newer attempt exists, so it is late data of
        # this one and not the beginning of a third.
        if attempt.fence is not None and writer.writer.attempt is None:
            return ordinal  # a newer attempt has begun, and this one before that
        # Who lives on is known after a heartbeat at most. Until then the writer stays in the old attempt, which holds.
        if self._restart_detection.is_open_question(writer, before):
            self._restart_detection.open(writer)
            return ordinal
        return self._restart(writer, attempt, step)

    def _restart(self, writer: WriterState, attempt: Attempt, step: int) -> int:
        attempts, counted = self._run.attempts, writer.writer.attempt
        # Another rank of the same restart was heard first, and has opened the attempt.
        if attempts.newest > attempt.ordinal and counted is None:
            return attempts.newest
        restarted = attempts.restart(counted)
        # What it was compared with may have turned out to be of another attempt: then nobody who lived on decided it.
        is_beyond = attempt.last_closed is None or step > attempt.last_closed
        why = (
            f"no rank of attempt {attempt.ordinal} lived on"
            if is_beyond
            else f"{attempt.stream.axis} {attempt.last_closed} had been closed"
        )
        self._run.output.say(
            "attempt",
            f"Attempt {restarted} begins: rank {writer.writer.rank} of role {writer.writer.role!r} was started again "
            f"at {attempt.stream.axis} {step}, and {why}.",
        )
        return restarted

    def _enthrone(self, writer: WriterState) -> None:
        run = self._run
        before = run.writers.predecessor(writer)
        # `silent_s` dates the replacement back: a replaced writer is a member for `world_wait_s` more
        # (`ClosingTrigger.gone`), and one that is known to be over is none from now on.
        if run.writers.successor(writer) is not None:
            self._replace(writer, silent_s=run.settings.world_wait_s)
        elif before is not None:
            self._replace(before, silent_s=run.settings.world_wait_s if run.is_dead(before) else 0.0)
            run.writers.dirty.add(before.number)
        run.writers.enthrone(writer)

    def _replace(self, writer: WriterState, *, silent_s: float = 0.0) -> None:
        """Wait no more for an incarnation that has been silent for so long that another one took its place."""
        writer.replace(self._run.active - silent_s, self._run.now)
        self._run.clock.forget(writer.number)
        # On an axis that it alone was on nobody else is heard, and its step would wait as if it were only quiet.
        for number in writer.attempts.values():
            self._run.step_streams.all[number].ask_everybody()
        self._run.step_streams.dirty.update(writer.attempts.values())

    def heard_again(self, writer: WriterState) -> None:
        """A replaced incarnation recorded something after its successor began: both live.

        In one attempt both count. One that still runs in an older attempt is not waited for, and ends nothing.
        """
        if writer.replaced_at is None or not self._outlived(writer):
            return
        successor = self._run.writers.newest(writer)
        if successor.attempt != writer.attempt:
            who = writer.writer
            self._run.output.say(
                "attempt",
                f"Rank {who.rank} of role {who.role!r} still runs in attempt {writer.attempt}, and attempt "
                f"{successor.attempt} has begun: from there on what it records does not count. End that "
                "process.",
            )
            return
        writer.live_on()
        # Of a contested one it is not known yet whether it is a twin or a restart: `settle` says it then.
        if not successor.contested:
            self._say_twins(successor)

    def _say_twins(self, writer: WriterState) -> None:
        who = writer.writer
        self._run.output.say(
            "same-rank",
            f"Two live processes are rank {who.rank} of role {who.role!r}; both count. "
            f"Give each its own rank (OTEL_ML_RANK) or role (OTEL_SERVICE_NAME).",
        )

    def _outlived(self, writer: WriterState) -> bool:
        """Whether an incarnation lived on beside its successor; by their own clock, where they have one."""
        after = self._run.writers.successor(writer)
        if after is None or not writer.boot_alive:
            return writer.alive_at > writer.replaced_when
        return writer.boot_alive > after.writer.born + self._run.settings.heartbeat_s

    def _fence(self, stream: StepStream, attempt: Attempt, step: int) -> None:
        """Let the older attempts of a stream end where this one begins: earlier steps close, the rest is superseded.

        What arrives later of an earlier step, from the spool of a process that was killed, is late data as any other.
        """
        later = [newer for newer in stream.attempts.values() if newer.ordinal > attempt.ordinal]
        attempt.begin(step, later)
        for ordinal in sorted(stream.attempts):
            older = stream.attempts[ordinal]
            if ordinal >= attempt.ordinal or older.is_fenced(step):
                continue
            # Earlier steps close with what they have; what still comes of them is late data. From `step` on the new
            # attempt does them again, and what the old one had is counted as superseded, not as lost. Where nothing
            # was cut short there is nothing to be done again: these steps are as whole as those that have closed.
            while older.order and (older.order[0] < step or self._has_ended_well(older)):
                self._close(older)
            # Before closed windows are dropped below: a correction that waits for one of them goes out first.
            self._late.export_all(older)
            self._discard(older, step)

    def _has_ended_well(self, attempt: Attempt) -> bool:
        """Whether all who recorded there have finished, and all they sent has arrived."""
        return all(
            writer.ended and writer.shutdown_message is not None and writer.shutdown_message.status == "finished"
            for writer in map(self._run.writers.__getitem__, attempt.members)
        )

    def _discard(self, attempt: Attempt, first: int) -> None:
        run = self._run
        for window in attempt.end(first):
            run.supersede(attempt, window.pieces)
            run.drop(window)
        # These were exported, and stay counted as closed: only what was open is superseded.
        for window in attempt.let_go_from(first):
            run.drop(window)
        run.step_streams.dirty.add(attempt.number)

    def _move(self, writers: list[WriterState], ordinal: int, begins: tuple[StepStream, int] | None = None) -> None:
        """Carry what writers already delivered over to another attempt: its beginning arrived late.

        Args:
            writers: who belongs to it.
            ordinal: which one it is.
            begins: where the writer begins that has delivered nothing yet.
        """
        # Taken before anything moves: an attempt that is made below is not among these, and is fenced in any case.
        known = {attempt.number: attempt.begins for attempt in self._run.step_streams if attempt.ordinal == ordinal}
        opened: dict[int, int] = {}
        if begins is not None:
            opened[self._run.step_streams.attempt(begins[0], ordinal).number] = begins[1]
        for writer in writers:
            writer.enter(ordinal)
            self._run.writers.dirty.add(writer.number)
            self._leave_behind(writer)
            # A copy: `_carry_axis` takes each axis out of the dictionary, and may put it back.
            for axis, number in list(writer.attempts.items()):
                carried = self._carry_axis(writer, axis, self._run.step_streams.all[number], ordinal)
                if carried is not None:
                    attempt, first = carried
                    opened[attempt.number] = min(first, opened.get(attempt.number, first))
        # Only where an attempt begins earlier than was known: fencing again at the same step would discard nothing, and
        # cost a look at every older attempt.
        for number, first in sorted(opened.items()):
            if number not in known or first < known[number]:
                attempt = self._run.step_streams.all[number]
                self._fence(attempt.stream, attempt, first)

    def _leave_behind(self, writer: WriterState) -> None:
        """Wait no more for the incarnation before `writer`: it may live, but in an older attempt."""
        before = self._run.writers.predecessor(writer)
        if before is not None and before.attempt != writer.attempt and before.replaced_at is None:
            self._replace(before)
            self._run.writers.dirty.add(before.number)

    def _carry_axis(self, writer: WriterState, axis: str, old: Attempt, ordinal: int) -> tuple[Attempt, int] | None:
        """Return where it went, and its first step there."""
        progress = writer.leave(axis)
        if progress is None:
            return None  # all that was heard of it there belonged to a later attempt already
        old.leave(writer.number)
        self._run.step_streams.dirty.add(old.number)
        number = writer.number
        steps = [window.step for window in old.open.values() if number in window.points or number in window.watermarks]
        late = [window for window in old.retained.values() if number in window.writers]
        if not steps and not late:
            return None
        attempt = self._run.step_streams.attempt(old.stream, ordinal)
        attempt.join(writer.number)
        writer.go_on(axis, attempt.number, progress)
        for window in late:
            self._late.withdraw(old, window, self._carry(writer, old, attempt, window))
        for step in steps:
            window = old.open[step]
            window.remove(self._carry(writer, old, attempt, window))
        self._run.step_streams.dirty.add(attempt.number)
        return attempt, min([*steps, *(window.step for window in late)])

    def _carry(self, writer: WriterState, old: Attempt, attempt: Attempt, window: StepWindow) -> list[Piece]:
        """Copy what a writer delivered for a window; return it, for the window to give up."""
        mine = window.of(writer.number)
        target = self._target(attempt, window.step)
        window.pass_on(writer.number, target)
        self._run.touch(old, window)
        self._run.touch(attempt, target)
        if window.step not in attempt.open:
            self._late.carry(attempt, target, writer.number, mine)
            return mine
        for piece in mine:
            target.add(piece)
        return mine

    def _target(self, attempt: Attempt, step: int) -> StepWindow:
        if attempt.has_closed(step):
            return self._late.kept(attempt, step)
        if step not in attempt.open:
            attempt.insert(self._run.new_window(attempt, step))
        return attempt.open[step]
