"""Where the numbers of the points of a ScopeMetrics lie, without decoding it: those of a fixed width, and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml.wire.protobuf import FIXED64, LENGTH, VARINT, Place, places
from otel_ml.wire.reductions import STATISTICS
from otel_ml_service.aggregation.fold import COUNT, MAX, MIN, SUM
from otel_ml_service.receiver.request_parts import key_and_value

__all__ = ["PointPositions", "UnknownError", "point_places"]

_SCOPE, _METRICS, _SCHEMA_URL = (number << 3 | LENGTH for number in (1, 2, 3))  # of ScopeMetrics
_DESCRIPTION = {number << 3 | LENGTH for number in (1, 2, 3)}  # name, description and unit of Metric
_GAUGE, _SUM, _HISTOGRAM = (number << 3 | LENGTH for number in (5, 7, 9))  # of Metric
_POINTS = 1 << 3 | LENGTH  # of all three
_HOW_IT_ADDS = {2 << 3 | VARINT, 3 << 3 | VARINT}  # aggregation_temporality and is_monotonic of Sum and Histogram
_START, _TIME = 2 << 3 | FIXED64, 3 << 3 | FIXED64  # of all points
_DOUBLE, _INTEGER = 4 << 3 | FIXED64, 6 << 3 | FIXED64  # of NumberDataPoint
_BUCKETS, _BOUNDS = 6 << 3 | LENGTH, 7 << 3 | LENGTH  # of HistogramDataPoint
_STATS: Mapping[int, Mapping[int, int]] = {
    _GAUGE: {_DOUBLE: SUM, _INTEGER: SUM},
    _SUM: {_DOUBLE: SUM, _INTEGER: SUM},
    _HISTOGRAM: {
        number << 3 | FIXED64: statistic for number, statistic in ((4, COUNT), (5, SUM), (11, MIN), (12, MAX))
    },
}
"""Kind of data → where its points have their statistics."""
_ATTRIBUTES: Mapping[int, int] = {
    _GAUGE: 7 << 3 | LENGTH,
    _SUM: 7 << 3 | LENGTH,
    _HISTOGRAM: 9 << 3 | LENGTH,
}
_FLAGS: Mapping[int, int] = {_GAUGE: 8 << 3, _SUM: 8 << 3, _HISTOGRAM: 10 << 3}
_INT_VALUE, _DOUBLE_VALUE = 3 << 3 | VARINT, 4 << 3 | FIXED64  # of AnyValue
_VALUE_ATTRIBUTES = {statistic.key.encode(): column for column, statistic in enumerate(STATISTICS) if statistic.key}
_STEP = wire.STEP.encode()


class UnknownError(WireError):
    """Something whose width may change, or that means more than a number."""


@dataclass(slots=True)
class PointPositions:
    """Where one point has its numbers.

    Attributes:
        stats: column of `Partials.stats` → offset of 8 bytes.
        is_integer: its value is a whole number.
        start: offset of start_time_unix_nano; None where it is not sent.
        time: offset of time_unix_nano; None where it is not sent.
        steps: of each `ml.step` among its attributes.
        bounds: explicit bounds, one after the other.
        counts: those of the explicit buckets.
        keys: of its attributes.
    """

    stats: dict[int, int] = field(default_factory=dict)
    is_integer: bool = False
    start: int | None = None
    time: int | None = None
    steps: list[Place] = field(default_factory=list)
    bounds: Place | None = None
    counts: Place | None = None
    keys: set[bytes] = field(default_factory=set)


def point_places(message: bytes) -> list[PointPositions]:
    """Return the places of each point of an encoded ScopeMetrics.

    Raises:
        UnknownError: there is more than numbers, names and attributes.
        WireError: it is not a protobuf message as everybody writes it.
    """
    found: list[PointPositions] = []
    for part in places(message):
        if part.tag == _METRICS:
            found += _points_of(message, part)
        elif part.tag not in {_SCOPE, _SCHEMA_URL}:
            raise UnknownError
    return found


def _points_of(message: bytes, metric: Place) -> Iterator[PointPositions]:
    data = None
    for part in places(message, metric.start, metric.end):
        # The kinds of data are a oneof, of which the last one counts: a second one is left to the decoder.
        if part.tag in _STATS and data is None:
            data = part
        elif part.tag not in _DESCRIPTION:
            raise UnknownError
    if data is None:
        return
    for part in places(message, data.start, data.end):
        if part.tag == _POINTS:
            yield _point(message, part, data.tag)
        elif part.tag not in _HOW_IT_ADDS:
            raise UnknownError


def _point(message: bytes, point: Place, kind: int) -> PointPositions:
    found, seen = PointPositions(), set[int]()
    stats, attributes = _STATS[kind], _ATTRIBUTES[kind]
    for part in places(message, point.start, point.end):
        if part.tag == attributes:
            _attribute(message, part, found)
            continue
        meaning = stats.get(part.tag, part.tag)
        if meaning in seen:  # the last one counts
            raise UnknownError
        seen.add(meaning)
        if part.tag in stats:
            found.stats[meaning] = part.start
            found.is_integer = kind != _HISTOGRAM and part.tag == _INTEGER
        elif part.tag == _START:
            found.start = part.start
        elif part.tag == _TIME:
            found.time = part.start
        elif kind == _HISTOGRAM and part.tag == _BOUNDS:
            found.bounds = part
        elif kind == _HISTOGRAM and part.tag == _BUCKETS:
            found.counts = part
        # Flags are not a number that a template leaves out: a point without a value is of another form.
        elif part.tag != _FLAGS[kind]:
            raise UnknownError
    return found


def _attribute(message: bytes, attribute: Place, found: PointPositions) -> None:
    key, value = key_and_value(message, attribute)
    found.keys.add(key)
    if value is None:
        return
    for part in places(message, value.start, value.end):
        if key == _STEP and part.tag == _INT_VALUE:
            found.steps.append(part)
        elif key in _VALUE_ATTRIBUTES and part.tag == _DOUBLE_VALUE:
            found.stats[_VALUE_ATTRIBUTES[key]] = part.start
