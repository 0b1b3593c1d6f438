"""Points without a step: into the step that they belong to, or into windows of the axis `time` (ADR 0034)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, takewhile

import numpy as np

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml_service.aggregation.lanes import Lane
from otel_ml_service.aggregation.late import Late
from otel_ml_service.aggregation.observation import Fragment, Sent
from otel_ml_service.aggregation.open_steps import OpenSteps
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.unit import Unit
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["NO_STEP", "WAITING_AXIS", "Stepless"]

NO_STEP = "No step is set; call otel_ml.set_step(i) or pass step=."

WAITING_AXIS = ""
"""Axis of the lane that holds a role's points until their step is known; no user can name an axis so."""

_OF_ROLE = 0
"""Unit of that lane for the next row of the role; those of writers that may yet enter a step come after it."""

FUTURE_S = 10
"""A time further ahead of the receive time than this is a wrong clock (docs/protocol.md §4.12)."""

HOLDS_BEFORE_CLOCK = 3
"""While a role has no row at all, what has no step waits so many times the allowed lateness for one."""

ROWS_BACK = 256
"""Closed rows among which that of a late point is looked for."""


class Stepless:
    """Finds a row for points that name none.

    What a process records before its first step belongs to that one. Of a process that enters none, it belongs to the
    first row of its role that has something newer; where the role has no rows, to a window of time.
    """

    def __init__(self, run: RunState, opened: OpenSteps, late: Late) -> None:
        self._run = run
        self._open = opened
        self._late = late
        self._held: set[int] = set()
        self._inside: set[int] = set()
        self._without: set[int] = set()

    def restore(self) -> None:
        """Find what waits for the first step of its writer, after the lanes were restored."""
        for lane in self._waiting_lanes():
            self._held.update(step - 1 for step in lane.open if step != _OF_ROLE)

    def add(self, piece: Piece, writer: WriterState, sent: Fragment) -> None:
        """Take points of one of our own writers."""
        role, number = writer.writer.role, writer.number
        lane = writer.lanes.get(DEFAULT_AXIS)
        progress = None if lane is None else writer.progress.get(lane)
        if lane is not None and progress is not None and progress.current is not None and not writer.child:
            self._put(self._run.lanes.all[lane], progress.current, piece)
        # A data loader or a monitor never enters a step: it would wait for ever for one of its own.
        elif writer.child or number in self._without:
            self._into_role(piece, role, sent)
        else:
            self._held.add(number)
            self._wait(piece, role, number + 1)

    def entered(self, writer: WriterState, lane: Lane, step: int) -> None:
        """A writer records in a step: what it recorded before its first one belongs there."""
        number = writer.number
        self._without.discard(number)
        self._inside.discard(number)
        if number in self._held:
            self._held.remove(number)
            for piece in self._given_up(self._waiting_lane(lane.track.role), number + 1):
                self._put(lane, step, piece)

    def inside(self, writer: WriterState) -> None:
        """A writer says that it is inside a step, of which nothing may have arrived yet."""
        if writer.number in self._held:
            self._inside.add(writer.number)

    def taken(self, role: str, row: Unit) -> list[Piece]:
        """Return what waits for the role's next row and is not newer than this one, and forget it."""
        track = self._run.lanes.tracks.get((role, WAITING_AXIS))
        if track is None or _OF_ROLE not in track.newest.open:
            return []
        pieces = self._given_up(track.newest, _OF_ROLE)
        for piece in pieces:
            # What is newer than this row belongs to the next one: a row must not show what happened after it.
            if piece.newest_ns > row.newest_ns:
                self._wait(piece, role, _OF_ROLE)
        return [piece for piece in pieces if piece.newest_ns <= row.newest_ns]

    def due(self) -> float | None:
        """Return the active time from which something is not waited for any more."""
        return min((due for _, _, due in self._holds()), default=None)

    def settle(self) -> None:
        """Wait no longer for steps that did not come."""
        for lane, unit, due in list(self._holds()):
            if due <= self._run.active:
                for piece in self._given_up_for_good(lane, unit):
                    self._into_role(piece, lane.track.role, None)

    def relieve(self, lane: Lane) -> None:
        """Wait no longer for anything, nor for a row that is to come: open state is bounded."""
        for unit in list(lane.open.values()):
            for piece in self._given_up_for_good(lane, unit):
                self._into_nearest(piece, lane.track.role)

    def to_windows(self, piece: Piece, role: str, sent: Sent | None, width: float) -> None:
        """Put points into windows of the axis `time`, by the time of their newest record."""
        run = self._run
        origin_ns = run.begin_time(int(piece.partials.times.min(initial=int(run.now * 1e9))))
        latest = int((run.now + FUTURE_S) * 1e9)
        times = piece.partials.times[:, 1]
        # A host whose clock runs ahead would open windows in the future, which nothing closes: such times count as now.
        times = np.where(times > latest, int(run.now * 1e9), times)
        windows = np.maximum(0, (times - origin_ns) // int(width * 1e9)) * math.ceil(width)
        lane = run.lanes.lane(run.lanes.track(role, TIME_AXIS), 0)
        for window in np.unique(windows).tolist():
            rows = np.flatnonzero(windows == window).tolist()
            part = piece if len(rows) == len(windows) else self._interned(piece.some(rows))
            self._to_window(lane, window, width, part, sent)

    def flush(self) -> None:
        """At the end of the run, put what still waits beside the row that it belongs to, or the last that closed."""
        for lane in self._waiting_lanes():
            role = lane.track.role
            for step in list(lane.open):
                for piece in self._given_up(lane, step):
                    self._at_end(piece, role)
        self._held.clear()

    def _at_end(self, piece: Piece, role: str) -> None:
        if not self._beside_a_row(piece, role):
            self._run.output.say("no-step", NO_STEP)
            self._late.join(self._window_lane(role), self._window_of(piece), piece)

    def _into_nearest(self, piece: Piece, role: str) -> None:
        if not self._beside_a_row(piece, role):
            self._run.output.say("no-step", NO_STEP)
            self.to_windows(piece, role, None, self._run.settings.time_window_s)

    def _beside_a_row(self, piece: Piece, role: str) -> bool:
        """Put points into the first row of their role that has something newer, or the last; False without rows."""
        track = self._run.lanes.tracks.get((role, DEFAULT_AXIS))
        newest = track.newest if track is not None and track.lanes else None
        if newest is None or newest.last_closed is None or newest.last_closed not in newest.retained:
            return False
        row = self._row_of(newest, piece)
        self._late.join(newest, newest.last_closed if row is None else row, piece)
        return True

    def _into_role(self, piece: Piece, role: str, sent: Fragment | None) -> None:
        """Put points of a process without steps into the first row of its role that has something newer."""
        track = self._run.lanes.tracks.get((role, DEFAULT_AXIS))
        if track is None and piece.source.number in self._without:
            self._run.output.say("no-step", NO_STEP)
            self.to_windows(piece, role, sent, self._run.settings.time_window_s)
            return
        row = self._row_of(track.newest, piece) if track is not None and track.lanes else None
        if track is None or row is None:
            self._wait(piece, role, _OF_ROLE)
        else:
            self._late.join(track.newest, row, piece)

    @staticmethod
    def _row_of(lane: Lane, piece: Piece) -> int | None:
        """Return the first of the newest closed rows that has something newer; None where that is still to come."""
        newest_first = islice(lane.newest_first(), ROWS_BACK)
        newer = takewhile(lambda unit: unit.newest_ns >= piece.newest_ns, newest_first)
        return min((unit.step for unit in newer), default=None)

    def _put(self, lane: Lane, step: int, piece: Piece) -> None:
        if lane.is_fenced(step):
            self._run.supersede(lane, [piece])
        elif lane.has_closed(step):
            self._late.join(lane, step, piece)
        else:
            self._open.keep(lane, self._open.unit(lane, step), piece)

    def _wait(self, piece: Piece, role: str, place: int) -> None:
        lane = self._waiting_lane(role)
        unit = self._open.unit(lane, place)
        # It never closes by itself: what waits here is taken out and put into a row, or a window.
        unit.close_at(math.inf)
        self._open.keep(lane, unit, piece)

    def _given_up(self, lane: Lane, place: int) -> list[Piece]:
        unit = lane.remove(place)
        pieces = list(unit.pieces)
        self._run.drop(unit)
        return pieces

    def _given_up_for_good(self, lane: Lane, unit: Unit) -> list[Piece]:
        """Return what waits in a unit: its writers have no step, until they enter one."""
        writers = unit.writers
        self._without |= writers
        self._held -= writers
        return self._given_up(lane, unit.step)

    def _holds(self) -> Iterator[tuple[Lane, Unit, float]]:
        """Yield what waits for a limited time: for a step of its writer, or for the first row of its role."""
        patience = self._run.settings.allowed_lateness_s
        for lane in self._waiting_lanes():
            has_clock = (lane.track.role, DEFAULT_AXIS) in self._run.lanes.tracks
            for step, unit in lane.open.items():
                if (step == _OF_ROLE and has_clock) or step - 1 in self._inside:
                    continue
                yield lane, unit, unit.opened + patience * (1 if has_clock else HOLDS_BEFORE_CLOCK)

    def _waiting_lanes(self) -> list[Lane]:
        tracks = self._run.lanes.tracks.items()
        return [track.newest for (_, axis), track in tracks if axis == WAITING_AXIS and track.lanes]

    def _waiting_lane(self, role: str) -> Lane:
        return self._run.lanes.lane(self._run.lanes.track(role, WAITING_AXIS), 0)

    def _to_window(self, lane: Lane, window: int, width: float, piece: Piece, sent: Sent | None) -> None:
        if lane.has_closed(window):
            if sent is None:
                self._late.join(lane, window, piece)
            else:
                self._late.add(lane, window, piece, sent)
            return
        unit = self._open.unit(lane, window)
        unit.close_at(unit.opened + width + self._run.settings.allowed_lateness_s)
        self._open.keep(lane, unit, piece)

    def _interned(self, piece: Piece) -> Piece:
        return piece._replace(shape=self._run.shapes.of(piece.partials.series))

    def _window_lane(self, role: str) -> Lane:
        return self._run.lanes.lane(self._run.lanes.track(role, TIME_AXIS), 0)

    def _window_of(self, piece: Piece) -> int:
        newest = piece.newest_ns
        return max(0, (newest - self._run.begin_time(newest)) // 1_000_000_000)
