"""Points that arrive after their step closed: new metrics, amendments, or too late (docs/protocol.md §5.6)."""

from __future__ import annotations

import math
from collections.abc import Callable

from otel_ml_service.aggregation.closed_steps import ClosedSteps
from otel_ml_service.aggregation.contest import Contest
from otel_ml_service.aggregation.exported_series import rows_of
from otel_ml_service.aggregation.folded import fold
from otel_ml_service.aggregation.lanes import Lane
from otel_ml_service.aggregation.learning import learn, say_lacking
from otel_ml_service.aggregation.observation import Manifest, Sent, part_of
from otel_ml_service.aggregation.piece import Piece, fold_order
from otel_ml_service.aggregation.rows import emit_histograms, emit_values, row_of
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.unit import Unit

__all__ = ["Late"]


class Late:
    """Owns the closed units whose fold state is in memory; older ones it gets from the disk."""

    def __init__(self, run: RunState, contest: Contest, closed: ClosedSteps) -> None:
        self._run = run
        self._contest = contest
        self._closed = closed
        self._waiting: dict[int, tuple[Lane, Unit]] = {}

    def restore(self) -> None:
        """Find the units that wait for an amendment, after the lanes were restored."""
        for lane in self._run.lanes:
            for unit in lane.retained.values():
                if unit.late_since is not None:
                    self._waiting[unit.number] = (lane, unit)

    def add(self, lane: Lane, step: int, piece: Piece, sent: Sent) -> None:
        """Take late points; those of a writer that may be a restart wait, however far back it began.

        Of others those are too late whose series were exported at the step, and nothing else is known of it any more.
        """
        number, unit = piece.source.number, self.kept(lane, step)
        # An undecided restart's points may be the first of a new attempt. Folding them into the closed step would
        # correct a value that was right.
        if not self._contest.is_open(number):
            taken, refused = self._parted(unit, piece)
            if refused is not None:
                self._run.refuse(lane, [refused])
                self._run.output.too_late.append(part_of(sent, refused.partials))
            if taken is None:
                self._drop_if_empty(lane, unit)
                self._relieve(lane, self._idle_step)
                return
            piece = taken
        self.join(lane, step, piece)
        unit.count_points(number, len(piece.partials.series))
        self._expect(unit, number)

    def join(self, lane: Lane, step: int, piece: Piece) -> None:
        """Add a piece to a closed unit, which may never have been open; it is exported in time."""
        learn(self._run, lane, piece)
        unit = self.kept(lane, step)
        unit.join_late(piece, self._run.active)
        self._waiting[unit.number] = (lane, unit)
        self._run.touch(lane, unit)
        self._relieve(lane, self._idle_step)

    def kept(self, lane: Lane, step: int) -> Unit:
        """Return the closed unit of a step, in memory, from the disk, or new."""
        unit = lane.retained.get(step)
        if unit is not None:
            return unit
        unit = self._closed.take(lane, step) if step <= lane.horizon else None
        if unit is None:
            unit = self._run.new_unit(lane, step)
            unit.publish_nothing()
            if step <= lane.horizon:
                unit.forget(self._closed.exported(lane, step))
            lane.note_step(step)
        lane.retain(unit)
        self._run.touch(lane, unit)
        return unit

    def _parted(self, unit: Unit, piece: Piece) -> tuple[Piece | None, Piece | None]:
        """Return what of a piece can still be taken, and what comes too late."""
        # `forgotten` lists the series that were exported and whose fold state is gone. A new partial of such a series
        # cannot be added to a value alone (a mean needs its count), so it is too late; a series that was never exported
        # can be new.
        if unit.forgotten is not None and not unit.forgotten:
            return piece, None
        gone = set(rows_of(piece, unit.forgotten))
        there = [row for row in range(len(piece.shape.series)) if row not in gone]
        return self._part(piece, there), self._part(piece, sorted(gone))

    def _part(self, piece: Piece, rows: list[int]) -> Piece | None:
        if len(rows) == len(piece.shape.series):
            return piece
        if not rows:
            return None
        part = piece.some(rows)
        return part._replace(shape=self._run.shapes.of(part.partials.series))

    def _drop_if_empty(self, lane: Lane, unit: Unit) -> None:
        """Forget a unit that was made for points which then had no place in it."""
        if unit.pieces or unit.missing:
            return
        self._waiting.pop(unit.number, None)
        self._run.drop(lane.let_go(unit.step))

    def manifest(self, lane: Lane, writer: int, manifest: Manifest) -> None:
        """Note how many points a writer says it sent for a closed step."""
        unit = lane.retained.get(manifest.step)
        if unit is None:
            return
        unit.hear_manifest(writer, manifest.points, manifest.seq)
        self._expect(unit, writer)
        self._run.touch(lane, unit)

    def retain(self, lane: Lane, unit: Unit) -> None:
        """Keep a unit that just closed in memory; the oldest go to the disk beyond the bounds."""
        run = self._run
        if not unit.pieces and not unit.missing:
            run.drop(unit)
            return
        unit.publish_nothing()
        for number in unit.manifests:
            self._expect(unit, number)
        lane.retain(unit)
        run.touch(lane, unit)
        self._relieve(lane, lambda lane: next(iter(lane.retained), None))

    def settle(self) -> None:
        """Export late changes that are complete, or have waited long enough."""
        patience = self._run.settings.allowed_lateness_s
        for lane, unit in list(self._waiting.values()):
            since = unit.late_since
            if self._contest.holds_unit(unit):
                continue
            # One correction for many late points: each goes to every backend as a row of its own.
            complete = all(self._run.writers[number].ended for number in unit.missing)
            if since is not None and (complete or self._run.active - since >= patience):
                self._export(lane, unit)

    def due(self) -> float | None:
        """Return the active time at which the next amendment goes out."""
        free = [unit for _, unit in self._waiting.values() if not self._contest.holds_unit(unit)]
        moments = [unit.late_since for unit in free if unit.late_since is not None]
        return min(moments) + self._run.settings.allowed_lateness_s if moments else None

    def withdraw(self, lane: Lane, unit: Unit, pieces: list[Piece]) -> None:
        """Take late points of one writer, not exported yet, out of a closed unit: they belong to a later attempt."""
        unit.withdraw(pieces)
        if unit.late_since is None:
            self._waiting.pop(unit.number, None)
        self._run.touch(lane, unit)

    def refuse(self, lane: Lane, writer: int) -> None:
        """Take what waited for a writer that turned out to be no restart as that of any other: some is too late."""
        for unit in [unit for unit in lane.retained.values() if unit.forgotten is None or unit.forgotten]:
            mine = unit.of(writer)
            parts = [self._parted(unit, piece) for piece in mine]
            refused = [gone for _, gone in parts if gone is not None]
            if not refused:
                continue
            self._run.refuse(lane, refused)
            self.withdraw(lane, unit, mine)
            for taken, _ in parts:
                if taken is not None:
                    self.join(lane, unit.step, taken)
            unit.points[writer] = sum(len(taken.partials.series) for taken, _ in parts if taken is not None)
            self._drop_if_empty(lane, unit)

    def export_all(self, lane: Lane | None = None) -> None:
        """Export everything that waits, of one lane or of all."""
        for owner, unit in list(self._waiting.values()):
            if lane is None or owner is lane:
                self._export(owner, unit)

    def _expect(self, unit: Unit, number: int) -> None:
        """Note whether points of the writer are still to come for the unit."""
        writer = self._run.writers[number]
        if writer.child or not writer.native or writer.ended:
            unit.missing.discard(number)
            return
        manifest = unit.manifests.get(number)
        if manifest is not None and unit.points.get(number, 0) >= manifest[0]:
            unit.missing.discard(number)
        elif manifest is not None or unit.points.get(number):
            unit.missing.add(number)

    def _export(self, lane: Lane, unit: Unit) -> None:
        run, track = self._run, lane.track
        self._waiting.pop(unit.number, None)
        self._contest.replace_dead(lane, unit)
        # The whole step is folded again instead of adding the late part: floating-point sums depend on the order, and a
        # correction must equal what the step would have been had everything come in time.
        (folded,) = fold([sorted(unit.pieces, key=fold_order)], track.reductions)
        row = row_of(folded, track, run.output)
        say_lacking(run, track, folded.pieces)
        before = unit.exported or {}
        changed = {name: value for name, value in row.values.items() if not _same(before.get(name), value)}
        track.tally.amended += sum(name in before for name in changed)
        track.tally.closed += unit.waiting
        unit.publish(row.values)
        run.touch(lane, unit)
        if changed:
            emit_values(run.output, lane, unit, row, changed, amendment=True)
        emit_histograms(run.output, track, unit, row)

    def _relieve(self, lane: Lane, otherwise: Callable[[Lane], int | None]) -> None:
        """Let units go to the disk that are too many, first those of which nothing waits; `otherwise` says which."""
        settings = self._run.settings
        # Steps that wait for a correction stay in memory: putting them on the disk only to fetch them again costs two
        # writes.
        while len(lane.retained) > settings.retained_steps and (step := self._idle_step(lane)) is not None:
            self._let_go(lane, step)
        while self._run.retained_bytes > settings.retained_bytes and (crowded := self._most_crowded()) is not None:
            step = self._idle_step(crowded)
            step = otherwise(crowded) if step is None else step
            if step is None:
                return
            self._let_go(crowded, step)

    @staticmethod
    def _idle_step(lane: Lane) -> int | None:
        """Return the oldest step of which nothing waits."""
        return next((step for step, unit in lane.retained.items() if unit.late_since is None), None)

    def _most_crowded(self) -> Lane | None:
        lanes = [lane for lane in self._run.lanes if lane.retained]
        return max(lanes, key=lambda lane: lane.retained_bytes, default=None)

    def _let_go(self, lane: Lane, step: int) -> None:
        unit = lane.retained[step]
        if unit.late_since is not None:
            self._export(lane, unit)
        lane.let_go(step)
        if not unit.pieces:
            self._run.drop(unit)
            return
        lane.raise_horizon(step)
        self._closed.put(lane, unit)


def _same(before: float | None, value: float) -> bool:
    if before is None:
        return False
    return before == value or (math.isnan(before) and math.isnan(value))
