"""Which attempt a writer's data belongs to, and what a new attempt does to the old one (CONTRACT §5 «Attempts»)."""

from __future__ import annotations

from collections.abc import Callable

from otel_ml_exporters.aggregation.lanes import Lane, Track, Unit
from otel_ml_exporters.aggregation.run_state import RunState
from otel_ml_exporters.aggregation.writers import WriterState

__all__ = ["Placing"]


class Placing:
    """Finds the lane of (writer, axis).

    Args:
        run: shared state.
        close: closes a lane's oldest unit with what has arrived.
        settle_late: exports what waits in a lane's closed units.
    """

    def __init__(self, run: RunState, close: Callable[[Lane], None], settle_late: Callable[[Lane], None]) -> None:
        self._run = run
        self._close = close
        self._settle_late = settle_late

    def lane(self, writer: WriterState, axis: str, step: int, seq: int, time_ns: int) -> Lane:
        """Return where (`axis`, `step`) of `writer` goes."""
        number = writer.lanes.get(axis)
        starts = writer.first_step_seq is None or seq < writer.first_step_seq
        if starts:
            writer.first_step_seq = seq
        if number is not None and not starts:
            return self._run.lanes.all[number]
        track = self._run.lanes.track(writer.writer.role, axis)
        attempt = self._attempt(writer, track, step)
        if writer.attempt is None and not writer.child:
            self._enthrone(writer, time_ns)
        elif writer.attempt is not None and attempt != writer.attempt:
            self._move([writer, *self._contemporaries(writer)], attempt)
        writer.attempt = attempt
        return self._enter(writer, track, attempt, step)

    def _enter(self, writer: WriterState, track: Track, attempt: int, step: int) -> Lane:
        known = attempt in track.lanes
        lane = self._run.lanes.lane(track, attempt)
        writer.lanes[track.axis] = lane.number
        if not known:
            self._fence(track, lane, step)
        return lane

    def _attempt(self, writer: WriterState, track: Track, step: int) -> int:
        if writer.child:
            parent = self._run.writers.parent_of(writer)
            if parent is not None and parent.attempt is not None:
                return parent.attempt
        attempts, counted = self._run.attempts, writer.writer.attempt
        attempt = attempts.of(counted) if writer.attempt is None else writer.attempt
        before = self._run.writers.predecessor(writer)
        if before is None or before.attempt != attempt or not self._dead(before):
            return attempt
        lane = track.lanes.get(attempt)
        if lane is None or lane.last_closed is None or step > lane.last_closed:
            return attempt
        if attempts.newest > attempt and counted is None:
            return attempts.newest
        restarted = attempts.restart(counted)
        self._run.output.say(
            f"Attempt {restarted} begins: rank {writer.writer.rank} of role {writer.writer.role!r} was started again "
            f"at {track.axis} {step}, and {track.axis} {lane.last_closed} had been closed."
        )
        return restarted

    def _contemporaries(self, writer: WriterState) -> list[WriterState]:
        """Return the writers of its role that began after its predecessor was heard last: they restarted with it."""
        before = self._run.writers.predecessor(writer)
        if before is None:
            return []
        return [
            other
            for other in self._run.writers
            if other is not writer
            and other.writer.role == writer.writer.role
            and other.attempt == writer.attempt
            and other.before is not None
            and other.since > before.heard_at
        ]

    def _dead(self, writer: WriterState) -> bool:
        """Whether an older incarnation is over: a live one would have sent its heartbeat."""
        return writer.goodbye is not None or self._run.now - writer.heard_at >= self._run.settings.heartbeat_s

    def _enthrone(self, writer: WriterState, time_ns: int) -> None:
        before = self._run.writers.predecessor(writer)
        if before is not None:
            silent = self._run.settings.world_wait_s if self._dead(before) else 0.0
            before.replaced_at, before.replaced_ns = self._run.active - silent, time_ns
            self._run.clock.forget(before.number)
            self._run.writers.dirty.add(before.number)
        self._run.writers.enthrone(writer)

    def heard_again(self, writer: WriterState, time_ns: int) -> None:
        """A replaced incarnation recorded something after its successor began: both are alive, and both count."""
        if writer.replaced_at is not None and time_ns > writer.replaced_ns:
            writer.replaced_at = None
            who = writer.writer
            self._run.output.say(
                f"Two live processes are rank {who.rank} of role {who.role!r}; both count. "
                f"Give each its own rank (OTEL_ML_RANK) or role (OTEL_SERVICE_NAME)."
            )

    def _fence(self, track: Track, lane: Lane, step: int) -> None:
        """Let the older attempts of a track end where this one begins: earlier steps close, the rest is superseded."""
        for attempt in sorted(track.lanes):
            older = track.lanes[attempt]
            if attempt >= lane.attempt or older.fenced:
                continue
            while older.order and older.order[0] < step:
                self._close(older)
            self._settle_late(older)
            older.fenced = True
            self._discard(older)
        newer = max(track.lanes)
        lane.fenced = newer > lane.attempt

    def _discard(self, lane: Lane) -> None:
        run = self._run
        for unit in lane.open.values():
            lane.track.tally.superseded += unit.count
            run.open_bytes -= unit.size
            run.drop(unit)
        for unit in lane.retained.values():
            run.retained_bytes -= unit.size
            run.drop(unit)
        lane.open, lane.order, lane.retained = {}, [], {}
        run.lanes.dirty.add(lane.number)

    def _move(self, writers: list[WriterState], attempt: int) -> None:
        """Carry what writers already delivered over to another attempt: their beginning arrived late."""
        opened: dict[int, int] = {}
        for writer in writers:
            writer.attempt = attempt
            self._run.writers.dirty.add(writer.number)
            for axis, number in list(writer.lanes.items()):
                old = self._run.lanes.all[number]
                known = attempt in old.track.lanes
                lane = self._carry_axis(writer, axis, old, attempt)
                if lane is not None and not known:
                    opened[lane.number] = lane.order[0]
        for number, step in opened.items():
            lane = self._run.lanes.all[number]
            self._fence(lane.track, lane, step)

    def _carry_axis(self, writer: WriterState, axis: str, old: Lane, attempt: int) -> Lane | None:
        progress = writer.progress.pop(old.number)
        old.members.remove(writer.number)
        old.watch = None
        del writer.lanes[axis]
        self._run.lanes.dirty.add(old.number)
        mine = {writer.number}
        steps = [step for step, unit in old.open.items() if mine & (unit.points.keys() | unit.manifests.keys())]
        if not steps:
            return None
        lane = self._run.lanes.lane(old.track, attempt)
        writer.lanes[axis] = lane.number
        lane.members.append(writer.number)
        writer.progress[lane.number] = progress
        for step in steps:
            self._carry(writer, old, lane, old.open[step])
        self._run.lanes.dirty.add(lane.number)
        return lane

    def _carry(self, writer: WriterState, old: Lane, lane: Lane, unit: Unit) -> None:
        target = lane.open.get(unit.step)
        if target is None:
            target = self._run.new_unit(lane, unit.step)
            lane.insert(target)
        mine = [piece for piece in unit.pieces if piece.source.number == writer.number]
        unit.remove(mine)
        for piece in mine:
            target.add(piece)
        if writer.number in unit.points:
            target.points[writer.number] = unit.points.pop(writer.number)
        if writer.number in unit.manifests:
            target.manifests[writer.number] = unit.manifests.pop(writer.number)
        self._run.touch(old, unit)
        self._run.touch(lane, target)
