"""Whether the oldest open step of an attempt may close, and for whom it waits (docs/protocol.md §5.4)."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from otel_ml_service.aggregation.role_ranks import ranks_elsewhere
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.step_streams import Attempt
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.writer_progress import Progress
from otel_ml_service.aggregation.writer_state import WriterState
from otel_ml_service.aggregation.writers import Writers

__all__ = ["STEPS_BEFORE_LEARNED", "ClosingDecision", "ClosingTrigger"]

STEPS_BEFORE_LEARNED = 3
"""Steps that close on an axis before the time between closes says how long a quiet member is waited for."""


class ClosingDecision(NamedTuple):
    """What is to be done with the oldest open window.

    Attributes:
        close: it closes now.
        holders: writers it waits for; where it closes, those that are missing.
        leavers: writers that died, or were quiet for too long, while others had gone on.
        due: active time at which to ask again, or None where only an arrival can change the answer.
    """

    close: bool
    holders: list[int]
    leavers: list[int]
    due: float | None


class ClosingTrigger:
    """Applies the closing rules; changes nothing."""

    def __init__(self, settings: EngineSettings, writers: Writers) -> None:
        self._settings = settings
        self._writers = writers

    def lateness(self, attempt: Attempt) -> float:
        """Return how long a quiet member is waited for: at least twice the usual time between closes."""
        # The first steps of a job compile, warm up and load data: their pace says nothing about the later ones.
        if attempt.closes < STEPS_BEFORE_LEARNED:
            return self._settings.first_lateness_s
        return max(self._settings.allowed_lateness_s, 2 * median(attempt.intervals))

    def gone(self, writer: WriterState, active: float) -> bool:
        """Whether nothing more comes from it: it ended, or a newer incarnation took its place and it is silent."""
        if writer.ended:
            return True
        return writer.replaced_at is not None and active - writer.replaced_at >= self._settings.world_wait_s

    def is_member(self, writer: WriterState, attempt: Attempt, step: int, active: float) -> bool:
        """Whether the writer is expected at `step`: it passed over no step between its last two."""
        progress = writer.progress.get(attempt.number)
        if progress is None or progress.current is None or progress.left or writer.child or self.gone(writer, active):
            return False
        # Membership asks which steps a rank passed over. While messages are missing that cannot be known, and taking
        # the rank out would close a step whose points are still on their way through a Collector.
        if writer.gap_since is not None:
            return True  # what it seems to have passed over may still be under way
        if progress.first is not None and step < progress.first:
            return False
        previous = progress.previous
        # A rank that evaluates every tenth step passes over nine: it is expected at none of them. One skipped step is
        # enough to say so, which is why only its last two steps are compared.
        return previous is None or not attempt.known.any_between(previous, progress.current)

    def done(self, writer: WriterState, attempt: Attempt, window: StepWindow, active: float) -> bool:
        """Whether everything the writer sent for the window has arrived.

        Its watermark and all that has a lower running number arrived; or it sent nothing for this step, and a
        later step's watermark did. A lower running number may hide an older step, so it is waited for, too.
        """
        progress = writer.progress[attempt.number]
        if writer.ended:
            return True
        watermark = window.watermarks.get(writer.number)
        # The running number counts, not the number of points: points that were dropped on the way are a gap, gaps are
        # given up after the allowed lateness, and then the step must not wait any longer.
        if watermark is not None:
            return watermark[1] <= writer.floor
        if not writer.native:
            return self._third_party_done(progress, window, active)
        if progress.done_through <= window.step:
            return False
        # It has points here but no end of the step: only if that end was in a gap that was given up is it done.
        return writer.number not in window.points or self._watermark_lost(writer, window)

    def _third_party_done(self, progress: Progress, window: StepWindow, active: float) -> bool:
        """A writer without watermarks: its first point of a later step, or the allowed lateness without a new one."""
        later = progress.current is not None and progress.current > window.step
        return later or active - progress.arrived_at >= self._settings.allowed_lateness_s

    @staticmethod
    def _watermark_lost(writer: WriterState, window: StepWindow) -> bool:
        # A watermark has a higher number than the points that it counts. Where gaps beyond these were given up, it may
        # have been in one of them.
        newest = max(piece.seq for piece in window.pieces if piece.source.number == writer.number)
        return writer.forgiven > newest

    def decide(self, attempt: Attempt, window: StepWindow, active: float) -> ClosingDecision:
        """Decide about the oldest open window."""
        # Windows of the axis `time` close by the clock alone: nobody announces the end of a second.
        if window.due is not None:
            return ClosingDecision(active >= window.due, [], [], window.due)
        members = self._members(attempt, window, active)
        holders = [number for number in members if not self.done(self._writers[number], attempt, window, active)]
        if not holders:
            due = self._world_due(attempt, window, active)
            return ClosingDecision(due is None or active >= due, [], [], due)
        alive = [number for number in holders if not self._writers[number].died]
        if not alive and window.first_done is None:
            return ClosingDecision(True, holders, [], None)
        timeout = self.lateness(attempt)
        arrived = {number: self._writers[number].progress[attempt.number].arrived_at for number in alive}
        # There are two clocks for a late rank. While nobody has gone on to the next step, all may be busy (a
        # checkpoint), and a row with what there is comes after a while. Once somebody has gone on, who is behind is
        # late from then.
        if window.first_done is None:  # nobody has gone on: nobody is late, but what there is is shown
            # `arrived` is not empty: where nobody is alive, the window has closed above.
            due = max(window.opened, *arrived.values()) + timeout
            return ClosingDecision(active >= due, holders, [], self._sooner(due, attempt, window, holders))
        dues = {number: max(moment, window.first_done) + timeout for number, moment in arrived.items()}
        # Who is not in `dues` has died, and leaves at once.
        leavers = [number for number in holders if number not in dues or active >= dues[number]]
        due = min((due for number, due in dues.items() if number not in leavers), default=None)
        return ClosingDecision(False, holders, leavers, self._sooner(due, attempt, window, holders))

    def _members(self, attempt: Attempt, window: StepWindow, active: float) -> Iterable[int]:
        writers = self._writers
        members = [
            number for number in attempt.members if self.is_member(writers[number], attempt, window.step, active)
        ]
        if members := [number for number in members if number not in window.excused]:
            return members
        # Without members (the first step, or all passed over it) those that sent something are waited for.
        senders = [n for n in window.points if n not in window.excused and not self.gone(writers[n], active)]
        # A child is waited for only where nobody but children sent anything.
        return [number for number in senders if not writers[number].child] or senders

    def _world_due(self, attempt: Attempt, window: StepWindow, active: float) -> float | None:
        """The first step of a life waits for `ml.world_size` ranks, at most 3 s after its first done writer."""
        # Only the first step knows nobody: later, who delivered before is known, and a rank that died must not make
        # every step wait for the world size.
        former = (number for number in attempt.members if self._has_closed(number, attempt))
        if any(not self.gone(self._writers[number], active) for number in former):
            return None
        present = [self._writers[number].writer for number in attempt.members if not self._has_closed(number, attempt)]
        world = max((writer.world_size or 1 for writer in present), default=1)
        ranks = {writer.rank for writer in present}
        if len(ranks) >= world:
            return None
        everybody = (writer.writer for writer in self._writers if writer.native)
        if len(ranks | ranks_elsewhere(everybody, attempt.stream.role, world)) >= world:
            return None
        return (window.opened if window.first_done is None else window.first_done) + self._settings.world_wait_s

    def _has_closed(self, number: int, attempt: Attempt) -> bool:
        """Whether a step closed that the writer was there for."""
        first = self._writers[number].progress[attempt.number].first
        return attempt.last_closed is not None and first is not None and first <= attempt.last_closed

    def _sooner(self, due: float | None, attempt: Attempt, window: StepWindow, holders: Iterable[int]) -> float | None:
        """Foreign writers are done, and holders named, after the allowed lateness; gaps have their own deadline."""
        allowed = self._settings.allowed_lateness_s
        moments = [] if due is None else [due]
        for number in holders:
            writer = self._writers[number]
            if not writer.native:
                moments.append(writer.progress[attempt.number].arrived_at + allowed)
            if writer.replaced_at is not None:
                moments.append(writer.replaced_at + self._settings.world_wait_s)
        # Nothing closes then, but `Steps._name_holders` says for whom it waits.
        if window.first_done is not None and not window.named:
            moments.append(window.first_done + allowed)
        return min(moments, default=None)
