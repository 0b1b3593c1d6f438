"""Points without a step: into the step that they belong to, or into windows of the axis `time` (ADR 0034)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, takewhile

import numpy as np

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml_service.aggregation.late_points import LatePoints
from otel_ml_service.aggregation.observation import Fragment, Sent
from otel_ml_service.aggregation.open_steps import OpenSteps
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.run_state import FUTURE_S, RunState
from otel_ml_service.aggregation.step_streams import Attempt
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["NO_STEP", "WAITING_AXIS", "Stepless"]

NO_STEP = "No step is set; call otel_ml.set_step(i) or pass step=."

WAITING_AXIS = ""
"""Axis of the attempt that holds a role's points until their step is known; no user can name an axis so."""

_OF_ROLE = 0
"""Unit of that attempt for the next row of the role; those of writers that may yet enter a step come after it."""

HOLDS_BEFORE_CLOCK = 3
"""While a role has no row at all, what has no step waits so many times the allowed lateness for one."""

ROWS_BACK = 256
"""Closed rows among which that of a late point is looked for."""


class Stepless:
    """Finds a row for points that name none.

    What a process records before its first step belongs to that one. Of a process that enters none, it belongs to the
    first row of its role that has something newer; where the role has no rows, to a window of time.
    """

    def __init__(self, run: RunState, opened: OpenSteps, late: LatePoints) -> None:
        self._run = run
        self._open = opened
        self._late = late
        self._held: set[int] = set()
        self._inside: set[int] = set()
        self._without: set[int] = set()

    def restore(self) -> None:
        """Find what waits for the first step of its writer, after the attempts were restored."""
        for attempt in self._waiting_attempts():
            # `add` puts the points of a writer in the place of its number and 1 more.
            self._held.update(step - 1 for step in attempt.open if step != _OF_ROLE)

    def add(self, piece: Piece, writer: WriterState, sent: Fragment) -> None:
        """Take points of one of our own writers."""
        role, number = writer.writer.role, writer.number
        attempt = writer.attempts.get(DEFAULT_AXIS)
        progress = None if attempt is None else writer.progress.get(attempt)
        if attempt is not None and progress is not None and progress.current is not None and not writer.child:
            self._put(self._run.step_streams.all[attempt], progress.current, piece)
        # A data loader or a monitor never enters a step: it would wait for ever for one of its own.
        elif writer.child or number in self._without:
            self._into_role(piece, role, sent)
        else:
            self._held.add(number)
            self._wait(piece, role, number + 1)

    def entered(self, writer: WriterState, attempt: Attempt, step: int) -> None:
        """A writer records in a step: what it recorded before its first one belongs there."""
        number = writer.number
        self._without.discard(number)
        self._inside.discard(number)
        if number in self._held:
            self._held.remove(number)
            for piece in self._given_up(self._waiting_attempt(attempt.stream.role), number + 1):
                self._put(attempt, step, piece)

    def inside(self, writer: WriterState) -> None:
        """A writer says that it is inside a step, of which nothing may have arrived yet."""
        if writer.number in self._held:
            self._inside.add(writer.number)

    def taken(self, role: str, row: StepWindow) -> list[Piece]:
        """Return what waits for the role's next row and is not newer than this one, and forget it."""
        stream = self._run.step_streams.streams.get((role, WAITING_AXIS))
        if stream is None or _OF_ROLE not in stream.newest.open:
            return []
        pieces = self._given_up(stream.newest, _OF_ROLE)
        for piece in pieces:
            # What is newer than this row belongs to the next one: a row must not show what happened after it.
            if piece.newest_ns > row.newest_ns:
                self._wait(piece, role, _OF_ROLE)
        return [piece for piece in pieces if piece.newest_ns <= row.newest_ns]

    def due(self) -> float | None:
        """Return the active time from which something is no longer waited for."""
        return min((due for _, _, due in self._holds()), default=None)

    def settle(self) -> None:
        """Wait no longer for steps that did not come."""
        for attempt, window, due in list(self._holds()):
            if due <= self._run.active:
                for piece in self._given_up_for_good(attempt, window):
                    self._into_role(piece, attempt.stream.role, None)

    def relieve(self, attempt: Attempt) -> None:
        """Wait no longer for anything, nor for a row that is to come: open state is bounded."""
        for window in list(attempt.open.values()):
            for piece in self._given_up_for_good(attempt, window):
                self._into_nearest(piece, attempt.stream.role)

    def to_windows(self, piece: Piece, role: str, sent: Sent | None, width: float) -> None:
        """Put points into windows of the axis `time`, by the time of their newest record."""
        run = self._run
        origin_ns = run.begin_time(int(piece.partials.times.min(initial=int(run.now * 1e9))))
        latest = int((run.now + FUTURE_S) * 1e9)
        times = piece.partials.times[:, 1]
        # As `believed` takes them: a clock that is ahead would open windows in the future, which nothing closes.
        times = np.where((times > latest) | (times == 0), int(run.now * 1e9), times)
        # [points]: the second since the origin at which the window of each begins, which is the window's step.
        starts = np.maximum(0, (times - origin_ns) // int(width * 1e9)) * math.ceil(width)
        attempt = run.step_streams.attempt(run.step_streams.stream(role, TIME_AXIS), 0)
        for start in np.unique(starts).tolist():
            rows = np.flatnonzero(starts == start).tolist()
            part = piece if len(rows) == len(starts) else self._interned(piece.some(rows))
            self._to_window(attempt, start, width, part, sent)

    def flush(self) -> None:
        """At the end of the run, put what still waits beside the row that it belongs to, or the last that closed."""
        for attempt in self._waiting_attempts():
            role = attempt.stream.role
            for step in list(attempt.open):
                for piece in self._given_up(attempt, step):
                    self._at_end(piece, role)
        self._held.clear()

    def _at_end(self, piece: Piece, role: str) -> None:
        if not self._beside_a_row(piece, role):
            self._run.output.say("no-step", NO_STEP)
            self._late.place(self._window_attempt(role), self._window_of(piece), piece)

    def _into_nearest(self, piece: Piece, role: str) -> None:
        if not self._beside_a_row(piece, role):
            self._run.output.say("no-step", NO_STEP)
            self.to_windows(piece, role, None, self._run.settings.time_window_s)

    def _beside_a_row(self, piece: Piece, role: str) -> bool:
        """Put points into the first row of their role that has something newer, or the last; False without rows."""
        stream = self._run.step_streams.streams.get((role, DEFAULT_AXIS))
        newest = stream.newest if stream is not None and stream.attempts else None
        if newest is None or newest.last_closed is None or newest.last_closed not in newest.retained:
            return False
        row = self._row_of(newest, piece)
        self._late.place(newest, newest.last_closed if row is None else row, piece)
        return True

    def _into_role(self, piece: Piece, role: str, sent: Fragment | None) -> None:
        """Put points of a process without steps into the first row of its role that has something newer."""
        stream = self._run.step_streams.streams.get((role, DEFAULT_AXIS))
        if stream is None and piece.source.number in self._without:
            self._run.output.say("no-step", NO_STEP)
            self.to_windows(piece, role, sent, self._run.settings.time_window_s)
            return
        row = self._row_of(stream.newest, piece) if stream is not None and stream.attempts else None
        if stream is None or row is None:
            self._wait(piece, role, _OF_ROLE)
        else:
            self._late.place(stream.newest, row, piece)

    @staticmethod
    def _row_of(attempt: Attempt, piece: Piece) -> int | None:
        """Return the first of the newest closed rows that has something newer; None where that is still to come."""
        newest_first = islice(attempt.newest_first(), ROWS_BACK)
        # Rows are looked at backwards, up to the first that is older.
        newer = takewhile(lambda window: window.newest_ns >= piece.newest_ns, newest_first)
        return min((window.step for window in newer), default=None)

    def _put(self, attempt: Attempt, step: int, piece: Piece) -> None:
        if attempt.is_fenced(step):
            self._run.supersede(attempt, [piece])
        elif attempt.has_closed(step):
            self._late.place(attempt, step, piece)
        else:
            self._open.keep(attempt, self._open.window(attempt, step), piece)

    def _wait(self, piece: Piece, role: str, place: int) -> None:
        attempt = self._waiting_attempt(role)
        window = self._open.window(attempt, place)
        # It never closes by itself: what waits here is taken out and put into a row, or a window.
        window.close_at(math.inf)
        self._open.keep(attempt, window, piece)

    def _given_up(self, attempt: Attempt, place: int) -> list[Piece]:
        window = attempt.remove(place)
        pieces = list(window.pieces)
        self._run.drop(window)
        return pieces

    def _given_up_for_good(self, attempt: Attempt, window: StepWindow) -> list[Piece]:
        """Return what waits in a window: its writers have no step, until they enter one."""
        writers = window.writers
        self._without |= writers
        self._held -= writers
        return self._given_up(attempt, window.step)

    def _holds(self) -> Iterator[tuple[Attempt, StepWindow, float]]:
        """Yield what waits for a limited time: for a step of its writer, or for the first row of its role."""
        timeout = self._run.settings.allowed_lateness_s
        for attempt in self._waiting_attempts():
            has_clock = (attempt.stream.role, DEFAULT_AXIS) in self._run.step_streams.streams
            for step, window in attempt.open.items():
                # The role's next row takes what waits for it; who says that it is inside a step will record there.
                if (step == _OF_ROLE and has_clock) or step - 1 in self._inside:
                    continue
                yield attempt, window, window.opened + timeout * (1 if has_clock else HOLDS_BEFORE_CLOCK)

    def _waiting_attempts(self) -> list[Attempt]:
        streams = self._run.step_streams.streams.items()
        return [stream.newest for (_, axis), stream in streams if axis == WAITING_AXIS and stream.attempts]

    def _waiting_attempt(self, role: str) -> Attempt:
        return self._run.step_streams.attempt(self._run.step_streams.stream(role, WAITING_AXIS), 0)

    def _to_window(self, attempt: Attempt, start: int, width: float, piece: Piece, sent: Sent | None) -> None:
        if attempt.has_closed(start):
            if sent is None:
                self._late.place(attempt, start, piece)
            else:
                self._late.add(attempt, start, piece, sent)
            return
        window = self._open.window(attempt, start)
        window.close_at(window.opened + width + self._run.settings.allowed_lateness_s)
        self._open.keep(attempt, window, piece)

    def _interned(self, piece: Piece) -> Piece:
        return piece._replace(shape=self._run.shapes.of(piece.partials.series))

    def _window_attempt(self, role: str) -> Attempt:
        return self._run.step_streams.attempt(self._run.step_streams.stream(role, TIME_AXIS), 0)

    def _window_of(self, piece: Piece) -> int:
        newest = self._run.believed(piece.newest_ns)
        return max(0, (newest - self._run.begin_time(newest)) // 1_000_000_000)
