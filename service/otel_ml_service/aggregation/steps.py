"""Points and manifests in, closed rows out: the units of every lane, oldest first (docs/protocol.md §5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from otel_ml.wire.attributes import DEFAULT_AXIS, RESERVED_PREFIX, TIME_AXIS
from otel_ml.wire.names import published_name
from otel_ml_service.aggregation.ahead import fold_with_next
from otel_ml_service.aggregation.closed_steps import ClosedSteps
from otel_ml_service.aggregation.closing import Judge
from otel_ml_service.aggregation.contest import Contest
from otel_ml_service.aggregation.lanes import Lane
from otel_ml_service.aggregation.late import Late
from otel_ml_service.aggregation.learning import say_lacking
from otel_ml_service.aggregation.observation import Fragment, Manifest, Sent
from otel_ml_service.aggregation.open_steps import OpenSteps
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.placing import Placing
from otel_ml_service.aggregation.progress import Progress
from otel_ml_service.aggregation.rows import emit_histograms, emit_values, row_of
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.stepless import WAITING_AXIS, Stepless
from otel_ml_service.aggregation.unit import Unit
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["Steps"]


class Steps:
    """Owns opening, filling and closing of units."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self.judge = Judge(run.settings, run.writers)
        self.contest = Contest(run)
        self.closed = ClosedSteps(run, run.disk)
        self.late = Late(run, self.contest, self.closed)
        self._open = OpenSteps(run)
        self.stepless = Stepless(run, self._open, self.late)
        self.placing = Placing(run, self.contest, self.close_oldest, self.late)

    def points(self, writer: WriterState, sent: Sent, piece: Piece, axis: str, step: int) -> None:
        """Take new points of a writer's step."""
        writer.lived(piece.newest_ns, self._run.now)
        if writer.replaced_at is not None:
            self.placing.heard_again(writer)
        lane = self.placing.lane(writer, axis, step, piece.seq)
        if axis == DEFAULT_AXIS:
            self.stepless.entered(writer, lane, step)
        # A later attempt has begun at or before this step. What the old one still sends must not mix with it.
        if lane.is_fenced(step):
            self._run.supersede(lane, [piece])
            return
        self._progress(writer, lane).deliver(step, self._run.active, lane.known)
        if lane.has_closed(step):
            self.late.add(lane, step, piece, sent)
        else:
            unit = self._open.unit(lane, step)
            if isinstance(sent, Fragment) or not writer.native:  # manifests count what carries a running number
                unit.count_points(writer.number, len(piece.partials.series))
            self._open.keep(lane, unit, piece)
        # An SDK announces no end of a step: its first point of a step says that it is done with the one before.
        if not writer.native:
            lane.pass_step(step - 1, self._run.active)

    def kept_of(self, writer: WriterState, axis: str, step: int) -> Sequence[Piece] | None:
        """Return what is kept of a step that is closed where this writer delivers; None where it is not closed."""
        number = writer.lanes.get(axis)
        if number is None or not (lane := self._run.lanes.all[number]).has_closed(step):
            return None
        unit = lane.retained.get(step)
        return () if unit is None else unit.pieces

    def manifest(self, writer: WriterState, manifest: Manifest) -> None:
        """Note that a writer is done with a step."""
        step = manifest.step
        lane = self.placing.lane(writer, manifest.axis, step, manifest.seq)
        if lane.is_fenced(step):
            return
        progress = self._progress(writer, lane)
        progress.deliver(step, self._run.active, lane.known)
        progress.finish(step, manifest.seq, writer.floor)
        if lane.has_closed(step):
            self.late.manifest(lane, writer.number, manifest)
        else:
            unit = self._open.unit(lane, step)
            unit.hear_manifest(writer.number, manifest.points, manifest.seq)
            self._run.touch(lane, unit)
        lane.pass_step(step, self._run.active)

    def settle(self) -> None:
        """Close whatever may close."""
        run = self._run
        self.placing.settle()
        self.stepless.settle()
        due = [lane.number for lane in run.lanes if lane.due is not None and lane.due <= run.active]
        # Closing a step may make another one ready (a restart is decided, memory is freed), so this runs to a fixed
        # point. Sorted, because the order in which steps close is the order of `seq`, which a replay must repeat.
        while dirty := run.lanes.dirty.union(due):
            due = []
            run.lanes.dirty.clear()
            for number in sorted(dirty):
                self._settle_lane(run.lanes.all[number])
        # After the regular closing, so that memory pressure closes nothing that is complete anyway.
        while run.open_bytes > run.settings.open_bytes:
            self._relieve()
        self.late.settle()

    def close_oldest(self, lane: Lane) -> None:
        """Close a lane's oldest unit with what has arrived."""
        unit = lane.oldest
        if unit is not None:
            verdict = self.judge.judge(lane, unit, self._run.active)
            self._close(lane, verdict.holders)

    def _settle_lane(self, lane: Lane) -> None:
        if self.contest.holds_lane(lane):
            lane.ask_everybody()  # when that is decided
            return
        # Oldest first, and only the oldest: a backend that draws a line needs steps in order, and a later step that is
        # complete already waits for this one.
        while (unit := lane.oldest) is not None:
            if self._still_watched(lane, unit):
                return
            verdict = self.judge.judge(lane, unit, self._run.active)
            if verdict.close:
                self._close(lane, verdict.holders)
                continue
            for number in verdict.leavers:
                self._run.writers[number].progress[lane.number].leave()
                self._run.writers.dirty.add(number)
                unit.excuse(number)
            # Ask again: without those who left, the step may be complete now.
            if verdict.leavers:
                self._say_leaving(lane, unit, verdict.leavers)
                continue
            self._name_holders(lane, unit, verdict.holders)
            lane.wait_for(verdict.holders[-1] if verdict.holders else None, verdict.due)  # who came last will again
            return

    def _still_watched(self, lane: Lane, unit: Unit) -> bool:
        """Whether the writer that held the unit when asked last still does, so that nobody else need be asked."""
        # With 1,024 ranks each message would ask 1,024 members. While one rank is known to hold the step, it alone is
        # asked; the others cannot change the answer.
        if lane.watch is None or (lane.due is not None and lane.due <= self._run.active):
            return False
        writer, active = self._run.writers[lane.watch], self._run.active
        member = self.judge.is_member(writer, lane, unit.step, active)
        return member and not self.judge.done(writer, lane, unit, active)

    def _close(self, lane: Lane, holders: list[int]) -> None:
        run, track = self._run, lane.track
        unit = lane.close_oldest(run.active)
        self.contest.replace_dead(lane, unit)
        if track.axis == DEFAULT_AXIS:
            for piece in self.stepless.taken(track.role, unit):
                unit.add(piece)
        unit.miss(holders)
        redone = any(
            other.ordinal < lane.ordinal and other.last_closed is not None and unit.step <= other.last_closed
            for other in track.lanes.values()
        )
        track.tally.steps_redone += redone
        self._export(lane, unit)
        self.late.retain(lane, unit)

    def _export(self, lane: Lane, unit: Unit) -> None:
        run, track = self._run, lane.track
        folded = fold_with_next(lane, unit)
        row = row_of(folded, track, run.output)
        say_lacking(run, track, folded.pieces)
        track.tally.closed += unit.count
        track.tally.quantile_coarse += row.coarse
        if not row.values and not row.histograms:
            return
        values = dict(row.values)
        if track.axis == TIME_AXIS and (training := run.training.at(row.time_ns)) is not None:
            values[published_name(track.role, track.axis, f"{RESERVED_PREFIX}step")] = float(training)
        absent = self._absent(unit)
        silent, held_by = self._silent_ranks(lane, unit, absent), self._held_by(unit)
        values |= run.stragglers.look(lane, unit, silent, held_by, row.time_ns)
        if absent:
            values[published_name(track.role, track.axis, f"{RESERVED_PREFIX}writers_missing")] = float(len(absent))
            self._say_missing(lane, unit, absent)
        for name, count in track.tally.news().items():
            values[published_name(track.role, track.axis, RESERVED_PREFIX + name)] = float(count)
        if track.axis == DEFAULT_AXIS:
            run.training.note(track.role, lane.ordinal, unit.step, row.time_ns)
        unit.publish(row.values)
        emit_values(run.output, lane, unit, row, values, writers_missing=len(absent))
        emit_histograms(run.output, track, unit, row)
        run.stragglers.publish(track)

    def _absent(self, unit: Unit) -> list[int]:
        """Return who is missing; an incarnation that was replaced is not, its successor would be."""
        writers = self._run.writers
        return sorted(n for n in unit.missing if n not in unit.points and writers[n].replaced_at is None)

    def _silent_ranks(self, lane: Lane, unit: Unit, absent: list[int]) -> frozenset[int]:
        """Return the ranks that are missing, and those that fell silent in an earlier step, perhaps in its middle."""
        writers, heard = self._run.writers, unit.writers
        left = (writers[number] for number in lane.members if writers[number].progress[lane.number].is_silent)
        silent = {one.number for one in left if one.replaced_at is None and not one.ended} - heard
        return frozenset(writers[number].writer.rank for number in silent.union(absent))

    def _held_by(self, unit: Unit) -> frozenset[int]:
        """Return the ranks that are still in a unit from which nobody has gone on."""
        if unit.first_done is not None:
            return frozenset()
        return frozenset(self._run.writers[number].writer.rank for number in unit.missing)

    def _relieve(self) -> None:
        """Close the oldest unit where most is held in memory: open state is bounded."""
        lane = max(self._run.lanes, key=lambda lane: lane.open_bytes)
        if lane.track.axis == WAITING_AXIS:
            self.stepless.relieve(lane)
            return
        self._run.output.say(
            "open-steps-memory",
            f"Open steps of role {lane.track.role!r}, axis {lane.track.axis!r} take more than "
            f"{self._run.settings.open_bytes >> 20} MiB; the oldest close with what has arrived.",
        )
        self.close_oldest(lane)

    def _progress(self, writer: WriterState, lane: Lane) -> Progress:
        progress = writer.progress.get(lane.number)
        if progress is None:
            progress = writer.begin(lane.number)
            lane.join(writer.number)
            self._run.lanes.dirty.add(lane.number)
        return progress

    def _name_holders(self, lane: Lane, unit: Unit, holders: list[int]) -> None:
        """Say once for whom a step waits, when it is beyond the allowed lateness."""
        since = unit.first_done
        if (
            unit.named
            or not holders
            or since is None
            or self._run.active - since < self._run.settings.allowed_lateness_s
        ):
            return
        unit.name()
        self._run.touch(lane, unit)
        self._run.output.say("step-open", f"{_where(lane, unit)} is still open: it waits for {self._ranks(holders)}.")

    def _say_leaving(self, lane: Lane, unit: Unit, leavers: list[int]) -> None:
        """Say who has become silent: where the step has points of it, nothing else would tell."""
        self._run.output.say(
            "step-open",
            f"{_where(lane, unit)} waits no longer for {self._ranks(leavers)}: nothing was heard from there for "
            f"{self.judge.lateness(lane):.0f} s. The others go on.",
        )

    def _say_missing(self, lane: Lane, unit: Unit, absent: list[int]) -> None:
        self._run.output.say(
            "step-incomplete",
            f"{_where(lane, unit)} closed without {self._ranks(absent)}: nothing of it had arrived from there.",
        )

    def _ranks(self, numbers: list[int]) -> str:
        ranks = sorted({self._run.writers[number].writer.rank for number in numbers})
        shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
        return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _where(lane: Lane, unit: Unit) -> str:
    return f"{lane.track.axis} {unit.step} of role {lane.track.role!r} (attempt {lane.ordinal})"
