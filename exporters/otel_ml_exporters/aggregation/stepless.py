"""Points without a step: into the role's next row, or into windows of the axis `time` (CONTRACT §2, §4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml_exporters.aggregation.lanes import Lane
from otel_ml_exporters.aggregation.observation import Fragment, Sent
from otel_ml_exporters.aggregation.piece import Piece
from otel_ml_exporters.aggregation.run_state import RunState

if TYPE_CHECKING:
    from otel_ml_exporters.aggregation.steps import Steps

__all__ = ["NO_STEP", "WAITING_AXIS", "Stepless"]

NO_STEP = "No step is set; call otel_ml.set_step(i) or pass step=."

WAITING_AXIS = ""
"""Axis of the lane that holds a role's points until its next row closes; no user can name an axis so."""

FUTURE_S = 10
"""A time further ahead of the receive time than this is a wrong clock (CONTRACT §4)."""


class Stepless:
    """Finds a row for points that name none."""

    def __init__(self, run: RunState, steps: Steps) -> None:
        self._run = run
        self._steps = steps

    def add(self, piece: Piece, role: str, sent: Fragment) -> None:
        """Take points of one of our own writers."""
        if (role, DEFAULT_AXIS) in self._run.lanes.tracks:
            self._wait(piece, role)
            return
        self._run.output.say("no-step", NO_STEP)
        self.to_windows(piece, role, sent, self._run.settings.time_window_s)

    def taken(self, role: str) -> list[Piece]:
        """Return what waits for the role's next row, and forget it."""
        track = self._run.lanes.tracks.get((role, WAITING_AXIS))
        if track is None or not track.newest.order:
            return []
        unit = track.newest.remove_oldest()
        self._run.open_bytes -= unit.size
        pieces = list(unit.pieces)
        self._run.drop(unit)
        return pieces

    def to_windows(self, piece: Piece, role: str, sent: Sent, width: float) -> None:
        """Put points into windows of the axis `time`, by the time of their newest record."""
        run = self._run
        if run.origin_ns is None:
            run.origin_ns = int(piece.partials.times.min(initial=int(run.now * 1e9)))
        latest = int((run.now + FUTURE_S) * 1e9)
        times = piece.partials.times[:, 1]
        times = np.where(times > latest, int(run.now * 1e9), times)
        windows = np.maximum(0, (times - run.origin_ns) // int(width * 1e9)) * math.ceil(width)
        lane = run.lanes.lane(run.lanes.track(role, TIME_AXIS), 0)
        for window in np.unique(windows).tolist():
            rows = np.flatnonzero(windows == window).tolist()
            part = piece if len(rows) == len(windows) else self._interned(piece.some(rows))
            self._to_window(lane, window, width, part, sent)

    def flush(self) -> None:
        """At the end of the run, put what still waits for a row beside the last one that closed."""
        for role, axis in list(self._run.lanes.tracks):
            if axis != WAITING_AXIS:
                continue
            track = self._run.lanes.tracks[role, DEFAULT_AXIS]
            newest = track.newest if track.lanes else None
            for piece in self.taken(role):
                if newest is not None and newest.last_closed is not None and newest.last_closed in newest.retained:
                    self._steps.late.join(newest, newest.last_closed, piece)
                else:
                    self._steps.late.join(self._window_lane(role), self._window_of(piece), piece)

    def _wait(self, piece: Piece, role: str) -> None:
        lane = self._run.lanes.lane(self._run.lanes.track(role, WAITING_AXIS), 0)
        unit = self._steps.unit(lane, 0)
        unit.due = math.inf
        self._steps.keep(lane, unit, piece)

    def _to_window(self, lane: Lane, window: int, width: float, piece: Piece, sent: Sent) -> None:
        if lane.has_closed(window):
            self._steps.late.add(lane, window, piece, sent)
            return
        unit = self._steps.unit(lane, window)
        if unit.due is None:
            unit.due = unit.opened + width + self._run.settings.allowed_lateness_s
        self._steps.keep(lane, unit, piece)

    def _interned(self, piece: Piece) -> Piece:
        return piece._replace(shape=self._run.shapes.of(piece.partials.series))

    def _window_lane(self, role: str) -> Lane:
        return self._run.lanes.lane(self._run.lanes.track(role, TIME_AXIS), 0)

    def _window_of(self, piece: Piece) -> int:
        newest = piece.newest_ns
        if self._run.origin_ns is None:
            self._run.origin_ns = newest
        return max(0, (newest - self._run.origin_ns) // 1_000_000_000)
