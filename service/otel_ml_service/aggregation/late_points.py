"""Points that arrive after their step closed: new metrics, corrections, or too late (docs/protocol.md §5.6)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from otel_ml_service.aggregation.closed_steps import ClosedSteps
from otel_ml_service.aggregation.exported_series import rows_of
from otel_ml_service.aggregation.learned_reductions import learn, say_lacking
from otel_ml_service.aggregation.observation import Fragment, Sent, Watermark, part_of
from otel_ml_service.aggregation.piece import Piece, fold_order
from otel_ml_service.aggregation.reduced_windows import fold
from otel_ml_service.aggregation.restart_detection import RestartDetection
from otel_ml_service.aggregation.rows import emit_histograms, emit_values, row_of
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import Attempt
from otel_ml_service.aggregation.step_window import StepWindow

__all__ = ["LatePoints"]


class LatePoints:
    """Owns the closed windows whose fold state is in memory; older ones it gets from the disk."""

    def __init__(self, run: RunState, restart_detection: RestartDetection, closed: ClosedSteps) -> None:
        self._run = run
        self._restart_detection = restart_detection
        self._closed = closed
        self._waiting: dict[int, tuple[Attempt, StepWindow]] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether a correction is still to go out."""
        return bool(self._waiting)

    def restore(self) -> None:
        """Find the windows that wait for a correction, after the attempts were restored."""
        for attempt in self._run.step_streams:
            for window in attempt.retained.values():
                if window.late_since is not None:
                    self._waiting[window.number] = (attempt, window)

    def add(self, attempt: Attempt, step: int, piece: Piece, sent: Sent) -> None:
        """Take late points; those of a writer that may be a restart wait, however far back it began.

        Of others those are too late whose series were exported at the step, and nothing else is known of it anymore.
        """
        number, window = piece.source.number, self.kept(attempt, step)
        # An undecided restart's points may be the first of a new attempt. Folding them into the closed step would
        # correct a value that was right.
        if not self._restart_detection.is_open(number):
            taken, refused = self._parted(window, piece)
            if refused is not None:
                self._run.refuse(attempt, [refused])
                self._run.output.too_late.append(part_of(sent, refused.partials))
            if taken is None:
                self._drop_if_empty(attempt, window)
                self._relieve(attempt, self._idle_step)
                return
            piece = taken
        self.join(attempt, step, piece)
        window.count_points(number, len(piece.partials.series))
        self._expect(window, number)

    def place(self, attempt: Attempt, step: int, piece: Piece) -> None:
        """Take points that named no step, and belong to a closed one; some may come too late, as those that name it.

        Alone they would take the place of a value that was made of all the others.
        """
        number, window = piece.source.number, self.kept(attempt, step)
        taken, refused = (piece, None) if self._restart_detection.is_open(number) else self._parted(window, piece)
        if refused is not None:
            self._run.refuse(attempt, [refused])
            self._run.output.too_late.extend(self._as_sent(attempt, window, number, [refused]))
        if taken is None:
            self._drop_if_empty(attempt, window)
            self._relieve(attempt, self._idle_step)
        else:
            self.join(attempt, step, taken)

    def join(self, attempt: Attempt, step: int, piece: Piece) -> None:
        """Add a piece to a closed window, which may never have been open; it is exported in time."""
        learn(self._run, attempt, piece)
        window = self.kept(attempt, step)
        window.join_late(piece, self._run.active)
        self._waiting[window.number] = (attempt, window)
        self._run.touch(attempt, window)
        self._relieve(attempt, self._idle_step)

    def kept(self, attempt: Attempt, step: int) -> StepWindow:
        """Return the closed window of a step, in memory, from the disk, or new."""
        window = attempt.retained.get(step)
        if window is not None:
            return window
        window = self._closed.take(attempt, step) if step <= attempt.horizon else None
        if window is None:
            window = self._run.new_window(attempt, step)
            # Nothing of it was exported: no value that comes now counts as amended.
            window.publish_nothing()
            # It may have had fold state that is gone. Of a series that was exported then, the late points alone would
            # give a value of a part of its records.
            if step <= attempt.horizon:
                window.forget(self._closed.exported(attempt, step))
            attempt.note_step(step)
        attempt.retain(window)
        self._run.touch(attempt, window)
        return window

    def _parted(self, window: StepWindow, piece: Piece) -> tuple[Piece | None, Piece | None]:
        """Return what of a piece can still be taken, and what comes too late."""
        # `forgotten` lists the series that were exported and whose fold state is gone. A new partial of such a series
        # cannot be added to a value alone (a mean needs its count), so it is too late; a series that was never exported
        # can be new.
        if window.forgotten is not None and not window.forgotten:
            return piece, None
        gone = set(rows_of(piece, window.forgotten))
        there = [row for row in range(len(piece.shape.series)) if row not in gone]
        return self._part(piece, there), self._part(piece, sorted(gone))

    def _part(self, piece: Piece, rows: list[int]) -> Piece | None:
        if len(rows) == len(piece.shape.series):
            return piece
        if not rows:
            return None
        part = piece.some(rows)
        return part._replace(shape=self._run.shapes.of(part.partials.series))

    def _drop_if_empty(self, attempt: Attempt, window: StepWindow) -> None:
        """Forget a window that was made for points which then had no place in it."""
        if window.pieces or window.missing:
            return
        self._waiting.pop(window.number, None)
        self._run.drop(attempt.let_go(window.step))

    def watermark(self, attempt: Attempt, writer: int, watermark: Watermark) -> None:
        """Note how many points a writer says it sent for a closed step."""
        window = attempt.retained.get(watermark.step)
        if window is None:
            return
        window.hear_watermark(writer, watermark.points, watermark.seq)
        self._expect(window, writer)
        self._run.touch(attempt, window)

    def retain(self, attempt: Attempt, window: StepWindow) -> None:
        """Keep a window that just closed in memory; the oldest go to the disk beyond the bounds."""
        run = self._run
        if not window.pieces and not window.missing:
            run.drop(window)
            return
        window.publish_nothing()
        for number in window.watermarks:
            self._expect(window, number)
        attempt.retain(window)
        run.touch(attempt, window)
        self._relieve(attempt, lambda attempt: next(iter(attempt.retained), None))

    def settle(self) -> None:
        """Export late changes that are complete, or have waited long enough."""
        timeout = self._run.settings.allowed_lateness_s
        for attempt, window in list(self._waiting.values()):
            since = window.late_since
            if self._restart_detection.holds_window(window):
                continue
            # One correction for many late points: each goes to every backend as a row of its own.
            # Who has ended, and all of whose messages are here, adds nothing more, whatever its watermark counted.
            complete = all(self._run.writers[number].ended for number in window.missing)
            if since is not None and (complete or self._run.active - since >= timeout):
                self._export(attempt, window)

    def due(self) -> float | None:
        """Return the active time at which the next correction goes out."""
        free = [window for _, window in self._waiting.values() if not self._restart_detection.holds_window(window)]
        moments = [window.late_since for window in free if window.late_since is not None]
        return min(moments) + self._run.settings.allowed_lateness_s if moments else None

    def withdraw(self, attempt: Attempt, window: StepWindow, pieces: list[Piece]) -> None:
        """Take late points of one writer, not exported yet, out of a closed window: they belong to a later attempt."""
        window.withdraw(pieces)
        if window.late_since is None:
            self._waiting.pop(window.number, None)
        self._run.touch(attempt, window)

    def refuse(self, attempt: Attempt, writer: int) -> None:
        """Take what waited for a writer that turned out to be no restart as that of any other: some is too late."""
        # Where nothing is forgotten (an empty set), all points can be taken.
        for window in [window for window in attempt.retained.values() if window.forgotten is None or window.forgotten]:
            self._refuse(attempt, window, writer)

    def _refuse(self, attempt: Attempt, window: StepWindow, writer: int) -> None:
        mine = window.of(writer)
        if any(self._parted(window, piece)[1] is not None for piece in mine):
            self.withdraw(attempt, window, mine)
            self._take_what_can_be(attempt, window, writer, mine)

    def carry(self, attempt: Attempt, window: StepWindow, writer: int, pieces: list[Piece]) -> None:
        """Take what a writer delivered in an attempt before, as what comes late: some is too late, if it is decided."""
        if self._restart_detection.is_open(writer):
            for piece in pieces:
                self.join(attempt, window.step, piece)
        else:
            self._take_what_can_be(attempt, window, writer, pieces)

    def _take_what_can_be(self, attempt: Attempt, window: StepWindow, writer: int, pieces: Sequence[Piece]) -> None:
        """Take what of all pieces of a writer can still be taken for a closed window; the rest comes too late."""
        parts = [self._parted(window, piece) for piece in pieces]
        refused = [gone for _, gone in parts if gone is not None]
        for taken, _ in parts:
            if taken is not None:
                self.join(attempt, window.step, taken)
        if refused:
            self._run.refuse(attempt, refused)
            self._run.output.too_late.extend(self._as_sent(attempt, window, writer, refused))
            window.points[writer] = sum(len(taken.partials.series) for taken, _ in parts if taken is not None)
        self._drop_if_empty(attempt, window)

    def _as_sent(
        self, attempt: Attempt, window: StepWindow, writer: int, pieces: Sequence[Piece]
    ) -> Iterator[Fragment]:
        """Yield pieces of a writer as it sent them; those of one message say how many points they are together."""
        who, points = self._run.writers[writer].writer, Counter[int]()
        for piece in pieces:
            points[piece.seq] += len(piece.partials.series)
        for one in pieces:
            where = attempt.stream.axis, window.step
            yield Fragment(who, *where, one.reduction, one.seq, points[one.seq], one.partials)

    def export_all(self, attempt: Attempt | None = None) -> None:
        """Export everything that waits, of one attempt or of all."""
        for owner, window in list(self._waiting.values()):
            if attempt is None or owner is attempt:
                self._export(owner, window)

    def _expect(self, window: StepWindow, number: int) -> None:
        """Note whether points of the writer are still to come for the window."""
        writer = self._run.writers[number]
        if writer.child or not writer.native or writer.ended:
            window.missing.discard(number)
            return
        watermark = window.watermarks.get(number)
        if watermark is not None and window.points.get(number, 0) >= watermark[0]:
            window.missing.discard(number)
        elif watermark is not None or window.points.get(number):
            window.missing.add(number)

    def _export(self, attempt: Attempt, window: StepWindow) -> None:
        # It may have to go out before that is decided, where an attempt begins here or memory is full.
        for number in self._restart_detection.undecided_in(window):
            self._refuse(attempt, window, number)
        if window.late_since is None:
            return  # all that waited came too late
        run, stream = self._run, attempt.stream
        self._waiting.pop(window.number, None)
        self._restart_detection.replace_dead(attempt, window)
        # The whole step is folded again instead of adding the late part: floating-point sums depend on the order, and a
        # correction must equal what the step would have been had everything come in time.
        (folded,) = fold([sorted(window.pieces, key=fold_order)], stream.reductions)
        row = row_of(folded, stream, run.output)
        say_lacking(run, stream, folded.pieces)
        before = window.exported or {}
        changed = {name: value for name, value in row.values.items() if not _same(before.get(name), value)}
        stream.tally.correct(sum(name in before for name in changed))
        # Before `publish`, which sets `waiting` to 0.
        stream.tally.close(window.waiting)
        window.publish(row.values)
        run.touch(attempt, window)
        if changed:
            emit_values(run.output, attempt, window, row, changed, amendment=True)
        emit_histograms(run.output, stream, window, row)

    def _relieve(self, attempt: Attempt, otherwise: Callable[[Attempt], int | None]) -> None:
        """Let windows go to the disk that are too many, first those of which nothing waits; `otherwise` says which."""
        settings = self._run.settings
        # Steps that wait for a correction stay in memory: putting them on the disk only to fetch them again costs two
        # writes.
        while len(attempt.retained) > settings.retained_steps and (step := self._idle_step(attempt)) is not None:
            self._let_go(attempt, step)
        # Bytes are bounded over all attempts: the one that holds most gives up a step, a waiting one if need be.
        while self._run.retained_bytes > settings.retained_bytes and (crowded := self._most_crowded()) is not None:
            step = self._idle_step(crowded)
            step = otherwise(crowded) if step is None else step
            if step is None:
                return
            self._let_go(crowded, step)

    @staticmethod
    def _idle_step(attempt: Attempt) -> int | None:
        """Return the oldest step of which nothing waits."""
        return next((step for step, window in attempt.retained.items() if window.late_since is None), None)

    def _most_crowded(self) -> Attempt | None:
        attempts = [attempt for attempt in self._run.step_streams if attempt.retained]
        return max(attempts, key=lambda attempt: attempt.retained_bytes, default=None)

    def _let_go(self, attempt: Attempt, step: int) -> None:
        window = attempt.retained[step]
        if window.late_since is not None:
            # On the disk nothing waits: its correction goes out first.
            self._export(attempt, window)
        if step not in attempt.retained:
            return  # nothing of it could be taken
        attempt.let_go(step)
        if not window.pieces:
            self._run.drop(window)
            return
        attempt.raise_horizon(step)
        self._closed.put(attempt, window)


def _same(before: float | None, value: float) -> bool:
    if before is None:
        return False
    return before == value or (math.isnan(before) and math.isnan(value))
