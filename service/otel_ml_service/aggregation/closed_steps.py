"""Closed steps of which the fold state is on the disk only, until they are too many bytes, or too old (ADR 0035).

They stand in a queue, the one that went to the disk first in front. Of what leaves it, the series stay known::

    disk/closed/<place in the queue>   which step, and what besides its points has to be known of it
    disk/step/<attempt>/<step>            its place in the queue
    disk/points/<window>/<k>             its points, as they were written when the step was open
    disk/shape/<n>                     a shape that only what is on the disk uses; in the queue behind all of that
    disk/names/<attempt>/<block>          of steps that have left the queue: the series
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from otel_ml_exporters.json_text import finite_json, plain_json
from otel_ml_service.aggregation.exported_series import ExportedSeries, Series, from_plain, rank_of, to_plain
from otel_ml_service.aggregation.lazy_entries import PREFIX, LazyEntries
from otel_ml_service.aggregation.observation import SeriesKey
from otel_ml_service.aggregation.piece import Shape, fold_order
from otel_ml_service.aggregation.reduced_windows import fold
from otel_ml_service.aggregation.rows import row_of
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.step_streams import Attempt
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.window_chunks import decode_pieces, points_key

__all__ = ["ClosedSteps"]

Place = tuple[int, int]
"""Number of an attempt, and a step."""

_AT_ONCE = 64
"""Steps that may leave the queue with one outcome, besides twice as many as come: a lowered bound is reached slowly."""


class ClosedSteps:
    """Owns the queue.

    Attributes:
        bytes: of the points in it.
    """

    def __init__(self, run: RunState, disk: LazyEntries) -> None:
        self._run = run
        self._disk = disk
        self._exported = ExportedSeries(disk)
        self.bytes = 0
        self._first = self._next = 0
        self._front: dict[str, Any] | None = None
        self._leaving: dict[Place, tuple[Attempt, StepWindow]] = {}
        self._left: dict[Place, StepWindow] = {}

    @property
    def leaving(self) -> Sequence[StepWindow]:
        """Units that leave memory with the next outcome; their points are to be written by then."""
        return [window for _, window in self._leaving.values()]

    def put(self, attempt: Attempt, window: StepWindow) -> None:
        """Let a window go to the disk."""
        # Among both the changed and the leaving ones, its points would be written twice (`Snapshot._windows`).
        self._run.changed_windows.pop(window.number, None)
        self._leaving[attempt.number, window.step] = attempt, window

    def take(self, attempt: Attempt, step: int) -> StepWindow | None:
        """Return a window as it was before it went to the disk, for good; None where none is there."""
        place = attempt.number, step
        if place in self._leaving:
            return self._leaving.pop(place)[1]
        number = self._disk.get(_step_key(place))
        header = None if number is None else self._header(int(number))
        if number is None or header is None:
            return None
        # In memory or read back: either way it leaves the queue, since it may go back into it later with other points.
        window = self._left.pop(place, None) or self._loaded(attempt, header)
        if window is None:
            # The disk has lost a part of it. Which series were exported stays known, as far as it is there: late points
            # of them are too late, and not taken for the first of theirs.
            self._forget(int(number), header)
        else:
            self._remove(int(number), header)
        return window

    def exported(self, attempt: Attempt, step: int) -> frozenset[Series] | None:
        """Return the series that a closed step of which nothing else is left was exported with; None if unknown."""
        return None if step <= attempt.unknown else self._exported.at(attempt.number, step)

    def forget_shapes(self, shapes: Sequence[Shape]) -> None:
        """Keep shapes that nothing in memory uses, until what is in the queue now has left it."""
        if not shapes:
            return
        for shape in shapes:
            self._disk.put(_shape_key(shape.number), plain_json(shape.series))
        self._append({"shapes": [shape.number for shape in shapes]})

    def store(self) -> None:
        """Write the headers of the windows that leave memory, whose points are written, and shorten the queue."""
        # Two generations: `_leaving` is in the transaction that is being made, `_left` was in the last one. Memory is
        # freed only when the transaction with the points is durable; until then a late point can still get the step
        # back.
        for window in self._left.values():  # what was handed out with the last outcome is committed
            window.release()
        self._left = {}
        for place, (attempt, window) in self._leaving.items():
            self._disk.put(_step_key(place), str(self._next).encode())
            self._append(self._header_of(attempt, window))
            self.bytes += window.stored_bytes
            self._left[place] = window
        # At most twice as many as come: one commit must not take seconds because a bound was lowered.
        self._shorten(_AT_ONCE + 2 * len(self._leaving))
        self._leaving = {}
        self._exported.store()

    def state(self) -> list[int]:
        """Return what `restore` needs."""
        return [self._first, self._next, self.bytes]

    def restore(self, state: Sequence[int]) -> None:
        """Go on with the queue."""
        self._first, self._next, self.bytes = state

    def _append(self, header: Mapping[str, object]) -> None:
        self._disk.put(_queue_key(self._next), finite_json(header))
        self._next += 1

    def _header_of(self, attempt: Attempt, window: StepWindow) -> dict[str, object]:
        shapes = {(piece.shape.number, rank_of(piece)) for piece in window.pieces}
        return {
            # Keys of the stored form (ADR 0030): a lane is an attempt's, a unit is a window.
            "lane": attempt.number,
            "step": window.step,
            "unit": window.number,
            "chunks": window.chunks,
            "bytes": window.stored_bytes,
            "opened": window.opened,
            "left": self._run.active,
            "missing": sorted(window.missing),
            "shapes of ranks": sorted(shapes, key=repr),
            "forgotten": to_plain(window.forgotten),
        }

    def _header(self, number: int) -> dict[str, Any] | None:
        data = self._disk.get(_queue_key(number))
        header: dict[str, Any] | None = None if data is None else json.loads(data)
        return header

    def _loaded(self, attempt: Attempt, header: Mapping[str, Any]) -> StepWindow | None:
        """Return a window of the disk, to be written anew in shapes of memory; None where the disk has lost it."""
        # Under the number that it had: its entries are called after it, and are removed when it is written anew.
        window = StepWindow(header["unit"], header["step"], header["opened"])
        points = [self._disk.get(points_key(window.number, chunk)) for chunk in range(header["chunks"])]
        # Damage costs a step what can still be taken for it, and no more.
        if None in points or not all(self._series(number) for number, _ in header["shapes of ranks"]):
            return None
        for data in filter(None, points):
            for piece in decode_pieces(data, self._shape, lambda number: self._run.writers[number].source):
                window.add(piece)
                window.count_points(piece.source.number, len(piece.partials.series))
        window.read_back(header["chunks"], header["missing"], from_plain(header["forgotten"]))
        # What was exported is not stored: the same points in the same order give the same bits.
        (folded,) = fold([sorted(window.pieces, key=fold_order)], attempt.stream.reductions)
        row = row_of(folded, attempt.stream, self._run.output)
        window.publish(row.values)
        for name, bins in row.histograms.items():
            window.note_histogram(name, sum(bins.counts))
        return window

    def _shape(self, number: int) -> Shape:
        return self._run.shapes.known.get(number) or self._run.shapes.of(self._series(number))

    def _series(self, number: int) -> tuple[SeriesKey, ...]:
        """Return the series of a shape, in memory or not; empty where the disk has lost it."""
        shape = self._run.shapes.known.get(number)
        if shape is not None:
            return shape.series
        stored = json.loads(self._disk.get(_shape_key(number)) or b"[]")
        return tuple(SeriesKey(name, tuple((k, v) for k, v in attributes), kind) for name, attributes, kind in stored)

    def _remove(self, number: int, header: Mapping[str, Any]) -> None:
        """Take a window out of the queue."""
        self._disk.put(_queue_key(number), None)
        self._disk.put(_step_key((header["lane"], header["step"])), None)
        self.bytes -= header["bytes"]
        # `_front` is the header of the place in front, kept so that not every commit reads it.
        if number == self._first:
            self._front = None

    def _shorten(self, most: int) -> None:
        """Let go of what is too old, or too much."""
        settings = self._run.settings
        while self._first < self._next and most > 0:
            self._front = self._front or self._header(self._first)
            front = self._front
            # A window, some shapes, or a hole: a window that was taken back left none in its place.
            if front is not None and "shapes" not in front:
                is_old = self._run.active - front["left"] >= settings.closed_s
                if not is_old and self.bytes <= settings.closed_bytes:
                    return
                most -= 1
                self._forget(self._first, front)
            elif front is not None:
                for number in front["shapes"]:
                    self._disk.put(_shape_key(number), None)
                self._disk.put(_queue_key(self._first), None)
            self._first, self._front = self._first + 1, None

    def _forget(self, number: int, header: Mapping[str, Any]) -> None:
        """Give up the fold state of a window; what was exported stays known."""
        place = header["lane"], header["step"]
        exported = frozenset(self._series_of(header["shapes of ranks"])).union(from_plain(header["forgotten"]) or ())
        self._exported.note(*place, exported)
        for chunk in range(header["chunks"]):
            self._disk.put(points_key(header["unit"], chunk), None)
        self._remove(number, header)
        # Where the bound is small, a window leaves the queue with the outcome with which it came.
        if place in self._left:
            self._left.pop(place).release()

    def _series_of(self, shapes: Sequence[tuple[int, int | None]]) -> Iterator[Series]:
        for number, rank in shapes:
            for key in self._series(number):
                yield key.name, key.attributes, rank


def _queue_key(number: int) -> str:
    return f"{PREFIX}closed/{number:012d}"


def _step_key(place: Place) -> str:
    return f"{PREFIX}step/{place[0]}/{place[1]}"


def _shape_key(number: int) -> str:
    return f"{PREFIX}shape/{number}"
