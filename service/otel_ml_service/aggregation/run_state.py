"""What the parts of an engine share: everything that is remembered of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otel_ml_service.aggregation.active_clock import ActiveClock
from otel_ml_service.aggregation.attempts import Attempts
from otel_ml_service.aggregation.interned_series import Shapes
from otel_ml_service.aggregation.lazy_entries import LazyEntries
from otel_ml_service.aggregation.newest_spans import NewestSpans
from otel_ml_service.aggregation.outage import LATE_S, Outage
from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.recent_identities import RecentIdentities
from otel_ml_service.aggregation.recent_points import RecentPoints
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.stale_samples import StaleSamples
from otel_ml_service.aggregation.step_streams import Attempt, StepStreams
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.stragglers import Stragglers
from otel_ml_service.aggregation.training_clock import TrainingClock
from otel_ml_service.aggregation.writer_state import WriterState
from otel_ml_service.aggregation.writers import Writers

__all__ = ["FUTURE_S", "OF_OTHERS", "TOO_MANY_PROCESSES", "RunState"]

TOO_MANY_PROCESSES = "too many processes"
OF_OTHERS = " of other programs"
"""Ends the reason of what is left out of programs of which nobody says what they have recorded."""

FUTURE_S = 10
"""A time further ahead of the receive time than this is of a wrong clock (docs/protocol.md §4.12)."""

_UNHEARD_S = 20.0
"""Of whom nothing arrives for so long, is taken for dead, whatever is known of others of its machine."""


class RunState:
    """Owned by one engine.

    Attributes:
        now: seconds since the epoch, of the newest call.
        beat_at: the same, when a process was heard last that is in no step, and waits, or was refused.
        resumed_at: the same, when a service went on with what another one had left; None where none did.
        started_at: the same, when what was heard first was recorded; None before.
        origin_ns: where the axis `time` begins: the first point of the first attempt.
        left_out: reason → values for which there was no room.
        superseded: values of an older attempt or of an incarnation that was replaced; `too_late`: of steps whose fold
            state was gone.
        events: log records taken.
        rejected: items that the service will never accept, each said and counted: they arrived, and are not a gap.
        native: a writer of ours was heard.
        is_missing_said: a person was told that something does not arrive.
        changed_windows: windows whose header is to be committed.
        gone_windows: numbers of windows to be removed from the committed state, and their number of chunks.
        disk: state entries that are read one by one.
    """

    def __init__(self, experiment: str, settings: EngineSettings, disk: LazyEntries) -> None:
        self.experiment = experiment
        self.settings = settings
        self.disk = disk
        self.writers = Writers()
        self.step_streams = StepStreams()
        self.shapes = Shapes()
        self.clock = ActiveClock(settings.quiet_s, settings.restart_wait_s)
        self.outage = Outage(settings.heartbeat_s)
        self.attempts = Attempts()
        self.output = Output()
        self.newest_spans = NewestSpans()
        self.stragglers = Stragglers(self.output, self.newest_spans, settings)
        self.stale_samples = StaleSamples(self.output)
        self.training = TrainingClock()
        self.recent = RecentIdentities(settings.identity_memory_s, settings.identities)
        self.recent_points = RecentPoints(settings.identity_memory_s, settings.identities)
        self.now = 0.0
        self.beat_at: float | None = None
        self.resumed_at: float | None = None
        self.started_at: float | None = None
        self.origin_ns: int | None = None
        self.next_window = 0
        self.superseded = 0
        self.too_late = 0
        self.events = 0
        self.rejected = 0
        self.native = False
        self.is_missing_said = False
        self.left_out: dict[str, int] = {}
        self.changed_windows: dict[int, tuple[Attempt, StepWindow]] = {}
        self.gone_windows: dict[int, int] = {}

    @property
    def active(self) -> float:
        """Seconds that count for time-outs."""
        return self.clock.active

    @property
    def open_bytes(self) -> int:
        """Memory of windows that are not closed."""
        return sum(attempt.open_bytes for attempt in self.step_streams)

    @property
    def retained_bytes(self) -> int:
        """Memory of closed windows that are kept for late data."""
        return sum(attempt.retained_bytes for attempt in self.step_streams)

    def hear(self, now: float) -> None:
        """Note the time; a clock that was set back changes nothing."""
        if now > self.now:
            self.now = now

    def begin_by(self, recorded_at: float) -> None:
        """Note when something of the first request was recorded: the run began with the earliest of it."""
        self.started_at = recorded_at if self.started_at is None else min(self.started_at, recorded_at)

    def hear_waiting(self) -> None:
        """Note that a process was heard that is in no step: it lives, and all time-outs stand still all the same."""
        self.beat_at = self.now

    def hear_refused(self, at: float) -> None:
        """Note that somebody was refused at that time, whose run is not known: whoever sends lives."""
        self.beat_at = at if self.beat_at is None else max(self.beat_at, at)

    def resume(self) -> None:
        """Note that this service goes on with what another one has left."""
        self.resumed_at = self.now

    def count_event(self) -> None:
        """Note that a log record was taken."""
        self.events += 1

    def note_rejected(self, items: int) -> None:
        """Note how many items, in all, arrived and will never be accepted."""
        self.rejected = items

    def note_missing_said(self) -> None:
        """Note that a person was told that something does not arrive."""
        self.is_missing_said = True

    def know_as_ours(self, writer: WriterState) -> None:
        """Note that a writer sends running numbers: it is one of ours, and so is the run."""
        writer.know_as_ours()
        self.native = True

    def begin_time(self, time_ns: int) -> int:
        """Return where the axis `time` begins: here, where it has not begun."""
        if self.origin_ns is None:
            # Where a clock that is ahead began it, all that right ones tell for as long would be before its beginning.
            self.origin_ns = max(self.believed(time_ns), 0)
        return self.origin_ns

    def believed(self, time_ns: int) -> int:
        """Return a time as it counts: where a clock is ahead, or no time was sent (0), that is the receive time."""
        now_ns = int(self.now * 1e9)
        return time_ns if 0 < time_ns <= now_ns + FUTURE_S * 10**9 else now_ns

    def new_window(self, attempt: Attempt, step: int) -> StepWindow:
        """Number a new window."""
        window = StepWindow(self.next_window, step, self.active)
        self.next_window += 1
        self.touch(attempt, window)
        return window

    def touch(self, attempt: Attempt, window: StepWindow) -> None:
        """Note that a window changed."""
        self.changed_windows[window.number] = (attempt, window)

    def drop(self, window: StepWindow) -> None:
        """Forget a window for good."""
        window.release()
        self.changed_windows.pop(window.number, None)
        self.gone_windows[window.number] = window.chunks

    def supersede(self, attempt: Attempt, pieces: Sequence[Piece]) -> None:
        """Count what a later attempt, or a later incarnation, did again."""
        attempt.stream.tally.supersede(sum(len(piece.partials.series) for piece in pieces))
        self.superseded += sum(piece.values for piece in pieces)
        self._count_of_others(pieces)

    def refuse(self, attempt: Attempt, pieces: Sequence[Piece]) -> None:
        """Count what came too late."""
        attempt.stream.tally.refuse(sum(len(piece.partials.series) for piece in pieces))
        self.too_late += sum(piece.values for piece in pieces)
        self._count_of_others(pieces)

    def _count_of_others(self, pieces: Sequence[Piece]) -> None:
        """Count what does not count in rows as recorded, where nobody says what was: else the rest would seem lost."""
        for piece in pieces:
            writer = self.writers[piece.source.number]
            if not writer.native:
                writer.count(piece.values)
                self.writers.dirty.add(writer.number)

    def leave_out(self, reason: str, values: int) -> bool:
        """Count values for which there is no room; whether they are the first ones for this reason."""
        is_first = reason not in self.left_out
        self.left_out[reason] = self.left_out.get(reason, 0) + values
        return is_first

    def restore(self, entry: Mapping[str, Any]) -> None:
        """Go on from the state entry `run`, as far as it is about the run itself."""
        self.now = entry["now"]
        self.started_at, self.origin_ns = entry["started_at"], entry["origin_ns"]
        self.attempts = Attempts(*entry["attempts"])
        self.next_window, self.events, self.left_out = entry["next_unit"], entry["events"], entry["left_out"]
        self.superseded, self.too_late, self.is_missing_said, begins_anew = entry["account"]
        self.writers.begin_anew(begins_anew)

    @property
    def left_out_unrecorded(self) -> int:
        """Values that were left out and are in no writer's account of what it has recorded."""
        unknown = (reason for reason in self.left_out if reason.startswith(TOO_MANY_PROCESSES) or OF_OTHERS in reason)
        return sum(self.left_out[reason] for reason in unknown)

    def live(self) -> list[int]:
        """Return the writers from which more may come."""
        silent = self.now - self.settings.end_silence_s
        return [  # at each commit of each of thousands of writers: without a call
            writer.number
            for writer in self.writers
            if writer.heard_at >= silent
            and writer.native
            and writer.shutdown_message is None
            and not writer.died
            and writer.replaced_at is None
            and writer.writer.parent is None
        ]

    def is_dead(self, writer: WriterState) -> bool:
        """Whether an older incarnation is over: a live one would have sent its heartbeat."""
        return self._is_over(writer) or self.writers.silent_s(writer, self.now) >= self.settings.heartbeat_s

    def may_be_late(self, writer: WriterState, late_s: float) -> bool:
        """Whether more may come of a writer, at most `late_s` after the outage in which it was not heard."""
        return not writer.has_left and self.outage.hides(writer.heard_at, self.now, late_s)

    def _is_over(self, writer: WriterState) -> bool:
        unheard = self.now - writer.heard_at >= _UNHEARD_S and not self.may_be_late(writer, LATE_S)
        return writer.has_left or unheard
