"""Points and watermarks in, closed rows out: the windows of every attempt, oldest first (docs/protocol.md §5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from otel_ml.quantities import seconds
from otel_ml.variable import size_text
from otel_ml.wire.attributes import DEFAULT_AXIS, RESERVED_PREFIX, TIME_AXIS
from otel_ml.wire.published_name import published_name
from otel_ml_service.aggregation.attempt_assignment import AttemptAssignment
from otel_ml_service.aggregation.batch_fold import fold_with_next
from otel_ml_service.aggregation.closed_steps import ClosedSteps
from otel_ml_service.aggregation.closing import ClosingTrigger
from otel_ml_service.aggregation.late_points import LatePoints
from otel_ml_service.aggregation.learned_reductions import say_lacking, say_unknown_dimensions
from otel_ml_service.aggregation.observation import Fragment, Sent, Watermark
from otel_ml_service.aggregation.open_steps import OpenSteps
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.ranks_not_finite import ranks_not_finite
from otel_ml_service.aggregation.restart_detection import RestartDetection
from otel_ml_service.aggregation.rows import emit_histograms, emit_values, row_of
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import Attempt
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.stepless import WAITING_AXIS, Stepless
from otel_ml_service.aggregation.writer_progress import Progress
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["Steps"]

_CAUGHT_UP = 16
"""Steps that were not held up by a rank, or had something of it, before it is named again."""


class Steps:
    """Owns opening, filling and closing of windows."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self.closing_trigger = ClosingTrigger(run.settings, run.writers)
        self.restart_detection = RestartDetection(run)
        self.closed = ClosedSteps(run, run.disk)
        self.late = LatePoints(run, self.restart_detection, self.closed)
        self._open = OpenSteps(run)
        self.stepless = Stepless(run, self._open, self.late)
        # (attempt, writer) → the last step that it held, or was missing in. Only what is said depends on it: a restart
        # says it anew.
        self._held: dict[tuple[int, int], int] = {}
        self._missed: dict[tuple[int, int], int] = {}
        self.attempt_assignment = AttemptAssignment(run, self.restart_detection, self.close_oldest, self.late)

    def points(self, writer: WriterState, sent: Sent, piece: Piece, axis: str, step: int) -> None:
        """Take new points of a writer's step."""
        writer.lived(piece.newest_ns, self._run.now)
        if writer.replaced_at is not None:
            self.attempt_assignment.heard_again(writer)
        attempt = self.attempt_assignment.attempt(writer, axis, step, piece.seq)
        if axis == DEFAULT_AXIS:
            self.stepless.entered(writer, attempt, step)
        # A later attempt has begun at or before this step. What the old one still sends must not mix with it.
        if attempt.is_fenced(step):
            self._run.supersede(attempt, [piece])
            return
        self._progress(writer, attempt).deliver(step, self._run.active, attempt.known)
        if attempt.has_closed(step):
            self.late.add(attempt, step, piece, sent)
        else:
            window = self._open.window(attempt, step)
            if isinstance(sent, Fragment) or not writer.native:  # watermarks count what carries a running number
                window.count_points(writer.number, len(piece.partials.series))
            self._open.keep(attempt, window, piece)
        # An SDK announces no end of a step: its first point of a step says that it is done with the one before.
        if not writer.native:
            self._pass_step(attempt, step - 1)

    def kept_of(self, writer: WriterState, axis: str, step: int) -> Sequence[Piece] | None:
        """Return what is kept of a step that is closed where this writer delivers; None where it is not closed."""
        number = writer.attempts.get(axis)
        if number is None or not (attempt := self._run.step_streams.all[number]).has_closed(step):
            return None
        # A step on the disk is not fetched for that: folded again, what was sent once more changes nothing. Where its
        # points are gone, what nobody remembers comes too late.
        window = attempt.retained.get(step)
        return () if window is None else window.pieces

    def watermark(self, writer: WriterState, watermark: Watermark) -> None:
        """Note that a writer is done with a step."""
        step = watermark.step
        attempt = self.attempt_assignment.attempt(writer, watermark.axis, step, watermark.seq)
        # A later attempt does the step: nobody waits here for its end.
        if attempt.is_fenced(step):
            return
        progress = self._progress(writer, attempt)
        progress.deliver(step, self._run.active, attempt.known)
        progress.finish(step, watermark.seq, writer.floor)
        if attempt.has_closed(step):
            self.late.watermark(attempt, writer.number, watermark)
        else:
            window = self._open.window(attempt, step)
            window.hear_watermark(writer.number, watermark.points, watermark.seq)
            self._run.touch(attempt, window)
        self._pass_step(attempt, step)

    def settle(self) -> None:
        """Close whatever may close."""
        run = self._run
        self.attempt_assignment.settle()
        self.stepless.settle()
        due = [attempt.number for attempt in run.step_streams if attempt.due is not None and attempt.due <= run.active]
        # Closing a step may make another one ready (a restart is decided, memory is freed), so this runs to a fixed
        # point. Sorted, because the order in which steps close is the order of `seq`, which a replay must repeat.
        while dirty := run.step_streams.dirty.union(due):
            due = []
            run.step_streams.dirty.clear()
            for number in sorted(dirty):
                self._settle_attempt(run.step_streams.all[number])
        # After the regular closing, so that memory pressure closes nothing that is complete anyway.
        while run.open_bytes > run.settings.open_bytes:
            # It ends: each turn closes a window, or empties what waits for a step.
            self._relieve()
        self.late.settle()

    def close_oldest(self, attempt: Attempt) -> None:
        """Close an attempt's oldest window with what has arrived."""
        window = attempt.oldest
        if window is not None:
            verdict = self.closing_trigger.decide(attempt, window, self._run.active)
            self._close(attempt, verdict.holders)

    def _settle_attempt(self, attempt: Attempt) -> None:
        if self.restart_detection.holds_attempt(attempt):
            attempt.ask_everybody()  # when that is decided
            return
        # Oldest first, and only the oldest: a backend that draws a line needs steps in order, and a later step that is
        # complete already waits for this one.
        while (window := attempt.oldest) is not None:
            if self._still_watched(attempt, window):
                return
            verdict = self.closing_trigger.decide(attempt, window, self._run.active)
            if verdict.close:
                self._close(attempt, verdict.holders)
                continue
            for number in verdict.leavers:
                self._run.writers[number].progress[attempt.number].leave()
                self._run.writers.dirty.add(number)
                window.excuse(number)
            # Ask again: without those who left, the step may be complete now.
            if verdict.leavers:
                self._run.touch(attempt, window)
                self._say_leaving(attempt, window, verdict.leavers)
                continue
            self._name_holders(attempt, window, verdict.holders)
            attempt.wait_for(verdict.holders[-1] if verdict.holders else None, verdict.due)  # who came last will again
            return

    def _still_watched(self, attempt: Attempt, window: StepWindow) -> bool:
        """Whether the writer that held the window when asked last still does, so that nobody else need be asked."""
        # With 1,024 ranks each message would ask 1,024 members. While one rank is known to hold the step, it alone is
        # asked; the others cannot change the answer.
        if attempt.watch is None or (attempt.due is not None and attempt.due <= self._run.active):
            return False
        writer, active = self._run.writers[attempt.watch], self._run.active
        member = self.closing_trigger.is_member(writer, attempt, window.step, active)
        return member and not writer.died and not self.closing_trigger.done(writer, attempt, window, active)

    def _close(self, attempt: Attempt, holders: list[int]) -> None:
        run, stream = self._run, attempt.stream
        window = attempt.close_oldest(run.active)
        # Before the window is folded: what another incarnation did again goes out, what has no step comes in.
        self.restart_detection.replace_dead(attempt, window)
        if stream.axis == DEFAULT_AXIS:
            for piece in self.stepless.taken(stream.role, window):
                window.add(piece)
        window.miss(holders)
        if any(
            other.ordinal < attempt.ordinal and other.last_closed is not None and window.step <= other.last_closed
            for other in stream.attempts.values()
        ):
            stream.tally.redo_step()
        self._export(attempt, window)
        self.late.retain(attempt, window)

    def _export(self, attempt: Attempt, window: StepWindow) -> None:
        run, stream = self._run, attempt.stream
        folded = fold_with_next(attempt, window)
        row = row_of(folded, stream, run.output)
        say_lacking(run, stream, folded.pieces)
        say_unknown_dimensions(run, stream, folded.pieces)
        stream.tally.close(window.count, row.coarse)
        if not row.values and not row.histograms:
            return
        values = row.values | ranks_not_finite(folded, stream.role, stream.axis)
        time_ns = run.believed(row.time_ns)
        if stream.axis == TIME_AXIS and (training := run.training.at(time_ns)) is not None:
            values[published_name(stream.role, stream.axis, f"{RESERVED_PREFIX}step")] = float(training)
        absent = self._absent(window)
        silent, held_by = self._silent_ranks(attempt, window, absent), self._held_by(window)
        values |= run.stragglers.look(attempt, window, silent, held_by, row.time_ns)
        if run.settings.findings:
            values |= run.stale_samples.look(attempt, window.step, row.values)
        if absent:
            values[published_name(stream.role, stream.axis, f"{RESERVED_PREFIX}writers_missing")] = float(len(absent))
            self._say_missing(attempt, window, absent)
        # After everything that may have counted something: it goes with this row.
        for name, count in stream.tally.news().items():
            values[published_name(stream.role, stream.axis, RESERVED_PREFIX + name)] = float(count)
        if stream.axis == DEFAULT_AXIS:
            run.training.note(stream.role, attempt.ordinal, window.step, time_ns)
        # Of the points alone: a correction is compared with what they gave, not with what was found and counted beside.
        window.publish(row.values)
        emit_values(run.output, attempt, window, row, values, writers_missing=len(absent))
        emit_histograms(run.output, stream, window, row)
        run.stragglers.publish(stream)

    def _absent(self, window: StepWindow) -> list[int]:
        """Return who is missing; an incarnation that was replaced is not, its successor would be."""
        writers = self._run.writers
        return sorted(n for n in window.missing if n not in window.points and writers[n].replaced_at is None)

    def _silent_ranks(self, attempt: Attempt, window: StepWindow, absent: list[int]) -> frozenset[int]:
        """Return the ranks that are missing, and those that fell silent in an earlier step, perhaps in its middle."""
        writers, heard = self._run.writers, window.writers
        left = (writers[number] for number in attempt.members if writers[number].progress[attempt.number].is_silent)
        silent = {one.number for one in left if one.replaced_at is None and not one.ended and not one.child} - heard
        return frozenset(writers[number].writer.rank for number in silent.union(absent))

    def _held_by(self, window: StepWindow) -> frozenset[int]:
        """Return the ranks that are still in a window from which nobody has gone on."""
        if window.first_done is not None:
            return frozenset()
        writers = (self._run.writers[number] for number in window.missing)
        return frozenset(writer.writer.rank for writer in writers if not writer.child)

    def _relieve(self) -> None:
        """Close the oldest window where most is held in memory: open state is bounded."""
        attempt = max(self._run.step_streams, key=lambda attempt: attempt.open_bytes)
        if attempt.stream.axis == WAITING_AXIS:
            self.stepless.relieve(attempt)
            return
        self._run.output.say(
            "open-steps-memory",
            f"Open steps of role {attempt.stream.role!r}, axis {attempt.stream.axis!r} take more than "
            f"{size_text(self._run.settings.open_bytes)}; the oldest close with what has arrived.",
        )
        self.close_oldest(attempt)

    def _pass_step(self, attempt: Attempt, step: int) -> None:
        for window in attempt.pass_step(step, self._run.active):
            self._run.touch(attempt, window)

    def _progress(self, writer: WriterState, attempt: Attempt) -> Progress:
        progress = writer.progress.get(attempt.number)
        if progress is None:
            progress = writer.begin(attempt.number)
            attempt.join(writer.number)
            self._run.step_streams.dirty.add(attempt.number)
        return progress

    def _name_holders(self, attempt: Attempt, window: StepWindow, holders: list[int]) -> None:
        """Say once for whom a step waits, when it is beyond the allowed lateness."""
        since = window.first_done
        if (
            window.named
            or not holders
            or since is None
            or self._run.active - since < self._run.settings.allowed_lateness_s
        ):
            return
        window.name()
        self._run.touch(attempt, window)
        if self._is_known(self._held, attempt, window, holders):
            return
        self._run.output.say(
            "step-open", f"{_where(attempt, window)} is still open: it waits for {self._ranks(holders)}."
        )

    @staticmethod
    def _is_known(last: dict[tuple[int, int], int], attempt: Attempt, window: StepWindow, writers: list[int]) -> bool:
        """Whether it was so of all of them shortly before: who lags holds each step, and was named at the first."""
        places = [(attempt.number, writer) for writer in writers]
        # Who was never named counts as one that was named long ago.
        newest = min(last.get(place, window.step - _CAUGHT_UP) for place in places)
        last.update(dict.fromkeys(places, window.step))
        return window.step - newest < _CAUGHT_UP

    def _say_leaving(self, attempt: Attempt, window: StepWindow, leavers: list[int]) -> None:
        """Say who has died or become silent: where the step has points of it, nothing else would tell."""
        died = [number for number in leavers if self._run.writers[number].died]
        # The run says once that a child has died: its rank may have ended well.
        if lost := [number for number in died if not self._run.writers[number].child]:
            self._run.output.say(
                "rank-died",
                f"{_where(attempt, window)} waits no longer for {self._ranks(lost)}: killed, or gone without a last "
                "message. The others go on.",
            )
        if silent := [number for number in leavers if number not in died]:
            self._run.output.say(
                "step-open",
                f"{_where(attempt, window)} waits no longer for {self._ranks(silent)}: nothing was heard from there "
                f"for {seconds(self.closing_trigger.lateness(attempt))}. The others go on.",
            )

    def _say_missing(self, attempt: Attempt, window: StepWindow, absent: list[int]) -> None:
        """Say who is missing, once where many steps are: a member may have lost what it sent of thousands."""
        if self._is_known(self._missed, attempt, window, absent):
            return
        self._run.output.say(
            "step-incomplete",
            f"{_where(attempt, window)} closed without {self._ranks(absent)}: nothing of it had arrived from there.",
        )

    def _ranks(self, numbers: list[int]) -> str:
        """Name the ranks; where only children are meant, those: the rank of one may be done, or have ended well."""
        writers = [self._run.writers[number] for number in numbers]
        own = [writer for writer in writers if not writer.child]
        ranks = sorted({writer.writer.rank for writer in own or writers})
        shown = ", ".join(map(str, ranks[:16])) + (f" and {len(ranks) - 16} more" if len(ranks) > 16 else "")
        return ("" if own else "a child of ") + (f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}")


def _where(attempt: Attempt, window: StepWindow) -> str:
    return f"{attempt.stream.axis} {window.step} of role {attempt.stream.role!r} (attempt {attempt.ordinal})"
