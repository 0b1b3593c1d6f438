"""Closed steps of which the fold state is on the disk only, until they are too many bytes, or too old (ADR 0035).

They stand in a queue, the one that went to the disk first in front. Of what leaves it, the series stay known::

    disk/closed/<place in the queue>   which step, and what besides its points has to be known of it
    disk/step/<lane>/<step>            its place in the queue
    disk/points/<unit>/<k>             its points, as they were written when the step was open
    disk/shape/<n>                     a shape that only what is on the disk uses; in the queue behind all of that
    disk/names/<lane>/<block>          of steps that have left the queue: the series
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from otel_ml_exporters.json_text import finite_json, plain_json
from otel_ml_service.aggregation.chunks import decode_pieces, points_key
from otel_ml_service.aggregation.exported_series import ExportedSeries, Series, from_plain, rank_of, to_plain
from otel_ml_service.aggregation.folded import fold
from otel_ml_service.aggregation.lanes import Lane
from otel_ml_service.aggregation.observation import SeriesKey
from otel_ml_service.aggregation.on_disk import PREFIX, OnDisk
from otel_ml_service.aggregation.piece import Shape, fold_order
from otel_ml_service.aggregation.rows import row_of
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.unit import Unit

__all__ = ["ClosedSteps"]

Place = tuple[int, int]
"""Number of a lane, and a step."""

_AT_ONCE = 64
"""Steps that may leave the queue with one outcome, besides twice as many as come: a lowered bound is reached slowly."""


class ClosedSteps:
    """Owns the queue.

    Attributes:
        bytes: of the points in it.
    """

    def __init__(self, run: RunState, disk: OnDisk) -> None:
        self._run = run
        self._disk = disk
        self._exported = ExportedSeries(disk)
        self.bytes = 0
        self._first = self._next = 0
        self._front: dict[str, Any] | None = None
        self._leaving: dict[Place, tuple[Lane, Unit]] = {}
        self._left: dict[Place, Unit] = {}

    @property
    def leaving(self) -> Sequence[Unit]:
        """Units that leave memory with the next outcome; their points are to be written by then."""
        return [unit for _, unit in self._leaving.values()]

    def put(self, lane: Lane, unit: Unit) -> None:
        """Let a unit go to the disk."""
        self._run.changed_units.pop(unit.number, None)
        self._leaving[lane.number, unit.step] = lane, unit

    def take(self, lane: Lane, step: int) -> Unit | None:
        """Return a unit as it was before it went to the disk, for good; None where none is there."""
        place = lane.number, step
        if place in self._leaving:
            return self._leaving.pop(place)[1]
        number = self._disk.get(_step_key(place))
        header = None if number is None else self._header(int(number))
        if number is None or header is None:
            return None
        # In memory or read back: either way it leaves the queue, since it may go back into it later with other points.
        unit = self._left.pop(place, None) or self._loaded(lane, header)
        if unit is None:
            self._forget(int(number), header)
        else:
            self._remove(int(number), header)
        return unit

    def exported(self, lane: Lane, step: int) -> frozenset[Series] | None:
        """Return the series that a closed step of which nothing else is left was exported with; None if unknown."""
        return None if step <= lane.unknown else self._exported.at(lane.number, step)

    def forget_shapes(self, shapes: Sequence[Shape]) -> None:
        """Keep shapes that nothing in memory uses, until what is in the queue now has left it."""
        if not shapes:
            return
        for shape in shapes:
            self._disk.put(_shape_key(shape.number), plain_json(shape.series))
        self._append({"shapes": [shape.number for shape in shapes]})

    def store(self) -> None:
        """Write the headers of the units that leave memory, whose points are written, and shorten the queue."""
        # Two generations: `_leaving` is in the transaction that is being made, `_left` was in the last one. Memory is
        # freed only when the transaction with the points is durable; until then a late point can still get the step
        # back.
        for unit in self._left.values():  # what was handed out with the last outcome is committed
            unit.release()
        self._left = {}
        for place, (lane, unit) in self._leaving.items():
            self._disk.put(_step_key(place), str(self._next).encode())
            self._append(self._header_of(lane, unit))
            self.bytes += unit.stored_bytes
            self._left[place] = unit
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

    def _header_of(self, lane: Lane, unit: Unit) -> dict[str, object]:
        shapes = {(piece.shape.number, rank_of(piece)) for piece in unit.pieces}
        return {
            "lane": lane.number,
            "step": unit.step,
            "unit": unit.number,
            "chunks": unit.chunks,
            "bytes": unit.stored_bytes,
            "opened": unit.opened,
            "left": self._run.active,
            "missing": sorted(unit.missing),
            "shapes of ranks": sorted(shapes, key=repr),
            "forgotten": to_plain(unit.forgotten),
        }

    def _header(self, number: int) -> dict[str, Any] | None:
        data = self._disk.get(_queue_key(number))
        header: dict[str, Any] | None = None if data is None else json.loads(data)
        return header

    def _loaded(self, lane: Lane, header: Mapping[str, Any]) -> Unit | None:
        """Return a unit of the disk, to be written anew in shapes of memory; None where the disk has lost it."""
        unit = Unit(header["unit"], header["step"], header["opened"])
        points = [self._disk.get(points_key(unit.number, chunk)) for chunk in range(header["chunks"])]
        if None in points or not all(self._series(number) for number, _ in header["shapes of ranks"]):
            return None
        for data in filter(None, points):
            for piece in decode_pieces(data, self._shape, lambda number: self._run.writers[number].source):
                unit.add(piece)
                unit.count_points(piece.source.number, len(piece.partials.series))
        unit.chunks, unit.rewritten = header["chunks"], True
        unit.missing = set(header["missing"])
        unit.forget(from_plain(header["forgotten"]))
        (folded,) = fold([sorted(unit.pieces, key=fold_order)], lane.track.reductions)
        row = row_of(folded, lane.track, self._run.output)
        unit.publish(row.values)
        unit.histograms = {name: sum(bins.counts) for name, bins in row.histograms.items()}
        return unit

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
        """Take a unit out of the queue."""
        self._disk.put(_queue_key(number), None)
        self._disk.put(_step_key((header["lane"], header["step"])), None)
        self.bytes -= header["bytes"]
        if number == self._first:
            self._front = None

    def _shorten(self, most: int) -> None:
        """Let go of what is too old, or too much."""
        settings = self._run.settings
        while self._first < self._next and most > 0:
            self._front = self._front or self._header(self._first)
            front = self._front
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
        """Give up the fold state of a unit; what was exported stays known."""
        place = header["lane"], header["step"]
        exported = frozenset(self._series_of(header["shapes of ranks"])).union(from_plain(header["forgotten"]) or ())
        self._exported.note(*place, exported)
        for chunk in range(header["chunks"]):
            self._disk.put(points_key(header["unit"], chunk), None)
        self._remove(number, header)
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
