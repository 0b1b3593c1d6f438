"""Messages that differ in their numbers only: recognised in one comparison, read when their step closes.

A writer of ours sends the same metrics, in the same order and of the same width, step after step, and so do the other
ranks of its role. Of a message that was decoded twice in the same form the *template* is kept: its bytes, and a mask
that leaves out the numbers. What fits is as valid as the one that was decoded, because protobuf's fixed-width fields
may hold anything; so the message can be acknowledged unread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml_exporters.aggregation.fold import COUNT, M2, MAX, MIN, STATS, SUM, WSUM, WXSUM
from otel_ml_exporters.aggregation.points import Column, Layout, Partials, SeriesKey
from otel_ml_exporters.receiver.coordinates import COORDINATES
from otel_ml_exporters.receiver.places import FIXED64, LENGTH, Place, places

__all__ = ["Templates"]

_BYTES = 64 * 2**20
"""Templates kept, in bytes of their messages; beyond it the cache starts anew."""

_SAME_LENGTH = 16
"""Templates of one length: each is tried, so more would cost more than decoding."""

_METRICS, _SCHEMA_URL = 2 << 3 | LENGTH, 3 << 3 | LENGTH  # of ScopeMetrics
_GAUGE, _HISTOGRAM = 5 << 3 | LENGTH, 9 << 3 | LENGTH  # of Metric
_POINTS = 1 << 3 | LENGTH  # of Gauge and Histogram
_START, _TIME = 2 << 3 | FIXED64, 3 << 3 | FIXED64  # of both kinds of point
_DOUBLE, _GAUGE_ATTRIBUTES = 4 << 3 | FIXED64, 7 << 3 | LENGTH  # of NumberDataPoint
_HISTOGRAM_ATTRIBUTES = 9 << 3 | LENGTH  # of HistogramDataPoint
_HISTOGRAM_STATS = {4 << 3 | FIXED64: COUNT, 5 << 3 | FIXED64: SUM, 11 << 3 | FIXED64: MIN, 12 << 3 | FIXED64: MAX}
_KINDS: Mapping[int, tuple[Mapping[int, int], int]] = {
    _GAUGE: ({_DOUBLE: SUM}, _GAUGE_ATTRIBUTES),
    _HISTOGRAM: (_HISTOGRAM_STATS, _HISTOGRAM_ATTRIBUTES),
}
"""Kind of data → where its points have their statistics, and the tag of their attributes."""
_ATTRIBUTE_KEY, _ATTRIBUTE_VALUE = 1 << 3 | LENGTH, 2 << 3 | LENGTH  # of KeyValue
_VALUE_ATTRIBUTES = {wire.M2.encode(): M2, wire.WSUM.encode(): WSUM, wire.WXSUM.encode(): WXSUM}
_FLAGS = {8 << 3, 10 << 3}  # of NumberDataPoint and HistogramDataPoint
_DESCRIPTION = {1 << 3 | LENGTH, 2 << 3 | LENGTH, 3 << 3 | LENGTH}  # name, description and unit of Metric
_TEMPORALITY = 2 << 3  # of Histogram
_COORDINATES = frozenset(key.encode() for key in COORDINATES)


class _Template(NamedTuple):
    mask: npt.NDArray[np.uint8]
    constant: bytes
    layout: Layout

    def fits(self, message: bytes) -> bool:
        """Whether `message`, of this length, differs in its numbers only."""
        return (np.frombuffer(message, np.uint8) & self.mask).tobytes() == self.constant


class Templates:
    """Finds the layout of a message: the fields of a ScopeMetrics after its scope."""

    def __init__(self) -> None:
        self._known: dict[int, list[_Template]] = {}
        self._seen: dict[tuple[int, int], tuple[SeriesKey, ...]] = {}
        self._bytes = 0

    def find(self, message: bytes) -> Layout | None:
        """Return the layout of a message whose template is known."""
        for template in self._known.get(len(message), ()):
            if template.fits(message):
                return template.layout
        return None

    def learn(self, message: bytes, partials: Partials) -> None:
        """Note how a message was decoded; at the second one of a form make its template."""
        templates = self._known.get(len(message), [])
        if not partials.series or len(templates) >= _SAME_LENGTH:
            return
        form = (len(message), id(partials.series))
        seen = self._seen.get(form)
        if seen is None:
            self._make_room(len(message))
            self._seen[form] = partials.series
        elif seen is partials.series:
            self._seen[form] = ()  # whether or not it has a template: it is not looked at again
            layout = _layout(message, partials.series)
            if layout is not None and _agrees(layout, message, partials):
                mask = _mask(layout)
                constant = (np.frombuffer(message, np.uint8) & mask).tobytes()
                templates.insert(0, _Template(mask, constant, layout))
                self._known[len(message)] = templates

    def _make_room(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _BYTES:
            self._known.clear()
            self._seen.clear()
            self._bytes = size


_Numbers = dict[int | str, int]
"""Column of the stats, `start` or `time` → offset, of one point."""


def _numbers(message: bytes) -> list[_Numbers] | None:
    """Return where the numbers of each point lie; None where there is more than numbers and names."""
    points: list[_Numbers] = []
    try:
        for metric in places(message):
            if metric.tag == _SCHEMA_URL:
                continue
            if metric.tag != _METRICS:
                return None
            for part in places(message, metric.start, metric.end):
                if part.tag in {_GAUGE, _HISTOGRAM}:
                    points += _points_of(message, part)
                elif part.tag not in _DESCRIPTION:
                    return None
    except _UnknownError:
        return None
    return points


class _UnknownError(WireError):
    """Something whose width may change, or that means more than a number."""


def _points_of(message: bytes, data: Place) -> list[_Numbers]:
    stats, attributes = _KINDS[data.tag]
    points = []
    for part in places(message, data.start, data.end):
        if part.tag == _POINTS:
            points.append(_point(message, part, stats, attributes))
        elif part.tag != _TEMPORALITY:
            raise _UnknownError
    return points


def _point(message: bytes, point: Place, stats: Mapping[int, int], attributes: int) -> _Numbers:
    found: _Numbers = {}
    for part in places(message, point.start, point.end):
        if part.tag in {_START, _TIME}:
            found["start" if part.tag == _START else "time"] = part.start
        elif part.tag in stats:
            found[stats[part.tag]] = part.start
        elif part.tag == attributes:
            _attribute(message, part, found)
        elif part.tag not in _FLAGS:
            raise _UnknownError
    return found


def _attribute(message: bytes, attribute: Place, found: _Numbers) -> None:
    key, value = b"", None
    for part in places(message, attribute.start, attribute.end):
        if part.tag == _ATTRIBUTE_KEY:
            key = message[part.start : part.end]
        elif part.tag == _ATTRIBUTE_VALUE:
            value = part
    if key in _COORDINATES:
        raise _UnknownError
    if key in _VALUE_ATTRIBUTES and value is not None:
        for part in places(message, value.start, value.end):
            if part.tag == _DOUBLE:  # of AnyValue, too
                found[_VALUE_ATTRIBUTES[key]] = part.start


def _layout(message: bytes, series: tuple[SeriesKey, ...]) -> Layout | None:
    points = _numbers(message)
    if points is None or len(points) != len(series) or any("time" not in point for point in points):
        return None
    for point in points:
        # A Histogram's point without minimum and maximum is a single value: its count must not change then.
        if MIN not in point:
            point.pop(COUNT, None)
    lone = np.array([COUNT not in point for point in points])
    first = np.array([point.get("start", -1) for point in points], dtype=np.int64)
    last = np.array([point["time"] for point in points], dtype=np.int64)
    return Layout(series, len(message), tuple(_columns(points)), lone, first, last)


def _columns(points: list[_Numbers]) -> Iterator[Column]:
    for statistic in range(STATS):
        rows = [row for row, point in enumerate(points) if statistic in point]
        if rows:
            offsets = np.array([points[row][statistic] for row in rows], dtype=np.int64)
            yield Column(statistic, slice(None) if len(rows) == len(points) else np.array(rows), offsets)


def _mask(layout: Layout) -> npt.NDArray[np.uint8]:
    mask = np.full(layout.size, 0xFF, dtype=np.uint8)
    for offsets in (*(column.offsets for column in layout.columns), layout.first[layout.first >= 0]):
        mask[offsets[:, None] + np.arange(8)] = 0
    mask[layout.last[:, None] + np.arange(8)] = 0
    # A time beyond the year 2262 does not fit into int64 and is rejected; its highest bit must be 0 here.
    mask[layout.last + 7] = 0x80
    return mask


def _agrees(layout: Layout, message: bytes, partials: Partials) -> bool:
    """Whether the layout reads from its own message what was decoded from it."""
    stats = np.ascontiguousarray(layout.stats([message]))
    return (
        partials.buckets is None
        and np.array_equal(stats.view(np.int64), partials.stats.view(np.int64))
        and np.array_equal(layout.times([message]), partials.times)
    )
