"""Which attempt a writer's data belongs to, and what a new attempt does to the old one (docs/protocol.md §5.7)."""

from __future__ import annotations

from collections.abc import Callable

from otel_ml_service.aggregation.contest import Contest
from otel_ml_service.aggregation.lanes import Lane, Track
from otel_ml_service.aggregation.late import Late
from otel_ml_service.aggregation.lives import Lives
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.unit import Unit
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["Placing"]


class Placing:
    """Finds the lane of (writer, axis).

    Args:
        run: shared state.
        close: closes a lane's oldest unit with what has arrived.
        late: what waits in a lane's closed units.
    """

    def __init__(self, run: RunState, contest: Contest, close: Callable[[Lane], None], late: Late) -> None:
        self._run = run
        self._contest = contest
        self._close = close
        self._late = late
        self._lives = Lives(run)

    def lane(self, writer: WriterState, axis: str, step: int, seq: int) -> Lane:
        """Return where (`axis`, `step`) of `writer` goes."""
        number = writer.lanes.get(axis)
        # A message with a lower running number may arrive after the first one: then the writer began at an earlier step
        # than it seemed, and its attempt has to be found again.
        starts = writer.starts(seq)
        if number is not None and not starts:
            return self._run.lanes.all[number]
        track = self._run.lanes.track(writer.writer.role, axis)
        ordinal = self._attempt(writer, track, step)
        if writer.attempt is None and not writer.child:
            self._enthrone(writer)
            # Ranks of one restart are heard one by one. Those that came first were put where their predecessors were;
            # now that it is known better they move along.
            others = self._lives.contemporaries(writer, ordinal, track, step)
            if others:
                self._move(others, ordinal, begins=(track, step))
        elif writer.attempt is not None and ordinal != writer.attempt:
            self._move([writer, *self._lives.contemporaries(writer, ordinal, track, step)], ordinal)
        writer.enter(ordinal)
        return self._enter(writer, track, ordinal, step)

    def settle(self, *, at_end: bool = False) -> None:
        """Open the attempts of the incarnations that turned out to be restarts."""
        for writer, is_restart in self._contest.decided(at_end=at_end):
            before = self._run.writers.predecessor(writer)
            lanes = [self._run.lanes.all[number] for number in writer.progress]
            if is_restart:
                lane = next((lane for lane in lanes if not self._is_beyond(writer, lane)), lanes[0])
                step = writer.progress[lane.number].first or 0
                ordinal = self._restart(writer, lane, step)
                self._move([writer, *self._lives.contemporaries(writer, ordinal, lane.track, step)], ordinal)
                continue
            for lane in lanes:
                self._late.refuse(lane, writer.number)
            if before is not None and before.attempt == writer.attempt and before.replaced_at is None:
                self._say_twins(writer)

    @staticmethod
    def _is_beyond(writer: WriterState, lane: Lane) -> bool:
        first = writer.progress[lane.number].first
        return first is None or lane.last_closed is None or first > lane.last_closed

    def _enter(self, writer: WriterState, track: Track, ordinal: int, step: int) -> Lane:
        known = ordinal in track.lanes
        lane = self._run.lanes.lane(track, ordinal)
        writer.write_to(track.axis, lane.number)
        # Its beginning may arrive late; where nobody counts, it may also be that of a life of which nothing was heard.
        is_earlier = writer.writer.attempt is not None and step < lane.begins
        if not known or is_earlier:
            self._fence(track, lane, step)
        return lane

    def _attempt(self, writer: WriterState, track: Track, step: int) -> int:
        if writer.child:
            parent = self._run.writers.parent_of(writer)
            if parent is not None and parent.attempt is not None:
                return parent.attempt
        ordinal = self._lives.attempt_of(writer, track, step) if writer.attempt is None else writer.attempt
        if writer.replaced_at is not None or self._run.writers.successor(writer) is not None:
            return ordinal  # over: its beginning, too, changes nothing that came after it
        before = self._run.writers.predecessor(writer)
        if before is None or before.attempt != ordinal:
            return ordinal
        lane = track.lanes.get(ordinal)
        if lane is None or lane.last_closed is None or step > lane.last_closed:
            return ordinal
        # Its step had closed here, which alone would mean a restart; but a newer attempt exists, so it is late data of
        # this one and not the beginning of a third.
        if lane.fence is not None and writer.writer.attempt is None:
            return ordinal  # a newer attempt has begun, and this one before that
        # Who lives on is known after a heartbeat at most. Until then the writer stays in the old attempt, which holds.
        if self._contest.is_open_question(writer, before):
            self._contest.open(writer)
            return ordinal
        return self._restart(writer, lane, step)

    def _restart(self, writer: WriterState, lane: Lane, step: int) -> int:
        attempts, counted = self._run.attempts, writer.writer.attempt
        if attempts.newest > lane.ordinal and counted is None:
            return attempts.newest
        restarted = attempts.restart(counted)
        # What it was compared with may have turned out to be of another attempt: then nobody who lived on decided it.
        is_beyond = lane.last_closed is None or step > lane.last_closed
        why = (
            f"no rank of attempt {lane.ordinal} lived on"
            if is_beyond
            else f"{lane.track.axis} {lane.last_closed} had been closed"
        )
        self._run.output.say(
            "attempt",
            f"Attempt {restarted} begins: rank {writer.writer.rank} of role {writer.writer.role!r} was started again "
            f"at {lane.track.axis} {step}, and {why}.",
        )
        return restarted

    def _enthrone(self, writer: WriterState) -> None:
        run = self._run
        before = run.writers.predecessor(writer)
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

    def _fence(self, track: Track, lane: Lane, step: int) -> None:
        """Let the older attempts of a track end where this one begins: earlier steps close, the rest is superseded.

        What arrives later of an earlier step, from the spool of a process that was killed, is late data as any other.
        """
        later = [newer for newer in track.lanes.values() if newer.ordinal > lane.ordinal]
        lane.begin(step, later)
        for ordinal in sorted(track.lanes):
            older = track.lanes[ordinal]
            if ordinal >= lane.ordinal or older.is_fenced(step):
                continue
            # Earlier steps close with what they have; what still comes of them is late data. From `step` on the new
            # attempt does them again, and what the old one had is counted as superseded, not as lost.
            while older.order and older.order[0] < step:
                self._close(older)
            self._late.export_all(older)
            self._discard(older, step)

    def _discard(self, lane: Lane, first: int) -> None:
        run = self._run
        for unit in lane.end(first):
            run.supersede(lane, unit.pieces)
            run.drop(unit)
        for unit in lane.let_go_from(first):
            run.drop(unit)
        run.lanes.dirty.add(lane.number)

    def _move(self, writers: list[WriterState], ordinal: int, begins: tuple[Track, int] | None = None) -> None:
        """Carry what writers already delivered over to another attempt: its beginning arrived late.

        Args:
            writers: who belongs to it.
            ordinal: which one it is.
            begins: where the writer begins that has delivered nothing yet.
        """
        known = {lane.number: lane.begins for lane in self._run.lanes if lane.ordinal == ordinal}
        opened: dict[int, int] = {}
        if begins is not None:
            opened[self._run.lanes.lane(begins[0], ordinal).number] = begins[1]
        for writer in writers:
            writer.enter(ordinal)
            self._run.writers.dirty.add(writer.number)
            self._leave_behind(writer)
            for axis, number in list(writer.lanes.items()):
                carried = self._carry_axis(writer, axis, self._run.lanes.all[number], ordinal)
                if carried is not None:
                    lane, first = carried
                    opened[lane.number] = min(first, opened.get(lane.number, first))
        # Only where an attempt begins earlier than was known: fencing again at the same step would discard nothing, and
        # cost a look at every older attempt.
        for number, first in sorted(opened.items()):
            if number not in known or first < known[number]:
                lane = self._run.lanes.all[number]
                self._fence(lane.track, lane, first)

    def _leave_behind(self, writer: WriterState) -> None:
        """Wait no more for the incarnation before `writer`: it may live, but in an older attempt."""
        before = self._run.writers.predecessor(writer)
        if before is not None and before.attempt != writer.attempt and before.replaced_at is None:
            self._replace(before)
            self._run.writers.dirty.add(before.number)

    def _carry_axis(self, writer: WriterState, axis: str, old: Lane, ordinal: int) -> tuple[Lane, int] | None:
        """Return where it went, and its first step there."""
        progress = writer.leave(axis)
        if progress is None:
            return None  # all that was heard of it there belonged to a later attempt already
        old.leave(writer.number)
        self._run.lanes.dirty.add(old.number)
        number = writer.number
        steps = [unit.step for unit in old.open.values() if number in unit.points or number in unit.manifests]
        late = [unit for unit in old.retained.values() if number in unit.writers]
        if not steps and not late:
            return None
        lane = self._run.lanes.lane(old.track, ordinal)
        lane.join(writer.number)
        writer.go_on(axis, lane.number, progress)
        for unit in late:
            self._late.withdraw(old, unit, self._carry(writer, old, lane, unit))
        for step in steps:
            unit = old.open[step]
            unit.remove(self._carry(writer, old, lane, unit))
        self._run.lanes.dirty.add(lane.number)
        return lane, min([*steps, *(unit.step for unit in late)])

    def _carry(self, writer: WriterState, old: Lane, lane: Lane, unit: Unit) -> list[Piece]:
        """Copy what a writer delivered for a unit; return it, for the unit to give up."""
        mine = unit.of(writer.number)
        target = self._target(lane, unit.step)
        for piece in mine:
            if unit.step in lane.open:
                target.add(piece)
            else:
                self._late.join(lane, unit.step, piece)
        unit.pass_on(writer.number, target)
        self._run.touch(old, unit)
        self._run.touch(lane, target)
        return mine

    def _target(self, lane: Lane, step: int) -> Unit:
        if lane.has_closed(step):
            return self._late.kept(lane, step)
        if step not in lane.open:
            lane.insert(self._run.new_unit(lane, step))
        return lane.open[step]
