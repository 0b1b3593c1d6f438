"""Data points → columns of numbers: what points of our own writers and of other SDKs have in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from otel_ml.wire import attributes as wire
from otel_ml.wire.reductions import STATISTICS, VALUE_ATTRIBUTES
from otel_ml_exporters.records import JsonValue
from otel_ml_service.aggregation.explicit_buckets import as_sent
from otel_ml_service.aggregation.fold import STATS
from otel_ml_service.aggregation.observation import Attributes, Buckets, Kind, Partials, SeriesKey
from otel_ml_service.aggregation.points import ExplicitBuckets
from otel_ml_service.receiver.attribute_values import LONGEST_NAME, as_text, plain
from otel_ml_service.receiver.partial_success import Rejections
from otel_ml_service.receiver.point_coordinates import COORDINATES, Coordinates, coordinates

__all__ = ["READ", "Columns", "Shapes", "point_attributes", "points_of", "series_of"]

_NAN = math.nan

_SHAPES = 4096
"""Interned shapes; a role has a handful, a Collector that splits requests makes more."""

Stats = tuple[float, ...]


class Columns:
    """Points under way into `Partials`: flat lists, because numpy takes them ten times faster than rows."""

    __slots__ = ("buckets", "series", "stats", "times")

    def __init__(self) -> None:
        self.series: list[SeriesKey] = []
        self.stats: list[float] = []
        self.times: list[int] = []
        self.buckets: dict[int, Buckets | ExplicitBuckets] = {}

    def __len__(self) -> int:
        return len(self.series)


class Shapes:
    """Interns series: equal ones become the same tuple."""

    def __init__(self) -> None:
        self._known: dict[tuple[SeriesKey, ...], tuple[SeriesKey, ...]] = {}

    def interned(self, series: tuple[SeriesKey, ...]) -> tuple[SeriesKey, ...]:
        """Return the tuple that stands for all equal ones."""
        known = self._known.get(series)
        if known is None:
            if len(self._known) >= _SHAPES:
                self._known.clear()
            known = self._known[series] = series
        return known

    def partials(self, columns: Columns) -> Partials:
        """Return the columns as arrays."""
        points = len(columns)
        found = columns.buckets
        return Partials(
            series=self.interned(tuple(columns.series)),
            stats=np.array(columns.stats, dtype=np.float64).reshape(points, STATS),
            times=np.array(columns.times, dtype=np.int64).reshape(points, 2),
            buckets=tuple(found.get(row) for row in range(points)) if found else None,
        )


def points_of(metric: Any, rejections: Rejections) -> tuple[str, Any]:
    """Return which field of a metric holds its points, and these; none where it is of an unknown kind."""
    kind = metric.WhichOneof("data")
    if kind is None:
        rejections.add(f"the metric {metric.name!r} is of no kind that OTLP has.")
        return "", ()
    return kind, getattr(metric, kind).data_points


def point_attributes(point: Any, scope: Coordinates) -> tuple[Coordinates, Attributes, Mapping[str, JsonValue]]:
    """Split a point's attributes into coordinates (they win over the scope's), identity and values."""
    if not point.attributes:
        return scope, (), _NOTHING
    found = {pair.key: plain(pair.value) for pair in point.attributes}
    here = scope
    if not found.keys().isdisjoint(COORDINATES):
        own = coordinates(found)
        # Each of them wins by itself: a point may name a step, and leave axis and reduction to its scope.
        here = Coordinates(
            own.axis if wire.AXIS in found else scope.axis,
            own.step if wire.STEP in found else scope.step,
            own.reduction if wire.REDUCTION in found else scope.reduction,
            own.defaults if wire.REDUCTION in found else scope.defaults,
        )
    identity = tuple(sorted((key, as_text(value)) for key, value in found.items() if key not in _RESERVED))
    return here, identity, found


def series_of(name: str, identity: Attributes, kind: str) -> SeriesKey:
    """Return the series of a point.

    Args:
        name: of the metric.
        identity: its attributes that tell it from others.
        kind: the field of the metric that holds it.

    Raises:
        ValueError: the names are too long.
    """
    length = len(name) + sum(len(key) + len(value) for key, value in identity)
    if length > LONGEST_NAME:
        raise ValueError(
            f"the metric {name[:60]!r}… and its attributes have {length} characters; expected at most {LONGEST_NAME}."
        )
    return SeriesKey(name, identity, _KINDS[kind])


def _moments(columns: Columns, series: SeriesKey, point: Any, values: Mapping[str, JsonValue]) -> None:
    count, total = point.count, point.sum
    if count == 1 and point.HasField("sum"):
        low = high = total  # a sender may leave out min and max of a single value
    else:
        total = total if point.HasField("sum") or not count else _NAN  # nothing adds up to 0, said or not
        low = point.min if point.HasField("min") else _NAN
        high = point.max if point.HasField("max") else _NAN
    _append(columns, series, point, (count, total, low, high, *(_extras(values) if values else _NO_EXTRAS)))


def _explicit(columns: Columns, series: SeriesKey, point: Any, values: Mapping[str, JsonValue]) -> None:
    _moments(columns, series, point, values)
    if point.explicit_bounds:
        buckets = as_sent(tuple(point.explicit_bounds), tuple(point.bucket_counts))
        # In the row that `_moments` has just added.
        if buckets is not None:
            columns.buckets[len(columns) - 1] = buckets


def _exponential(columns: Columns, series: SeriesKey, point: Any, values: Mapping[str, JsonValue]) -> None:
    if not _SCALES[0] <= point.scale <= _SCALES[1]:
        raise ValueError(f"a point of {series.name!r} has scale {point.scale}; expected {_SCALES[0]} to {_SCALES[1]}.")
    buckets = Buckets(
        point.scale,
        point.zero_count,
        point.positive.offset,
        tuple(point.positive.bucket_counts),
        point.negative.offset,
        tuple(point.negative.bucket_counts),
    )
    _moments(columns, series, point, values)
    columns.buckets[len(columns) - 1] = buckets


def _value(columns: Columns, series: SeriesKey, point: Any, _values: Mapping[str, JsonValue]) -> None:
    kind = point.WhichOneof("value")
    if kind is None:
        raise ValueError(f"a point of {series.name!r} has no value; expected as_double or as_int.")
    value = float(getattr(point, kind))
    _append(columns, series, point, (1.0, value, value, value, *_NO_EXTRAS))


def _summary(columns: Columns, series: SeriesKey, point: Any, _values: Mapping[str, JsonValue]) -> None:
    # Quantiles of different processes do not combine; count and sum do.
    _append(columns, series, point, (point.count, point.sum, _NAN, _NAN, *_NO_EXTRAS))


def _append(columns: Columns, series: SeriesKey, point: Any, stats: Stats) -> None:
    last = point.time_unix_nano
    if last >= _INT64:
        raise ValueError(f"time_unix_nano={last} is beyond the year 2262.")
    first = point.start_time_unix_nano
    columns.series.append(series)
    columns.stats.extend(stats)
    # A start that is not told, or lies behind the time, says nothing: the point is then of its time alone.
    columns.times.extend((first if 0 < first <= last else last, last))


def _extras(values: Mapping[str, JsonValue]) -> Stats:
    return tuple([_number(values.get(key)) for key in _KEYS])


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, (int, float)) else _NAN


_INT64 = 1 << 63
_SCALES = (-10, 20)
"""Of exponential histograms (OpenTelemetry's data model): at −10 one bucket holds every double above 1."""
_NOTHING: Mapping[str, JsonValue] = {}
_KEYS = tuple(statistic.key for statistic in STATISTICS if statistic.key)
_NO_EXTRAS = (_NAN,) * len(_KEYS)
_RESERVED = COORDINATES | VALUE_ATTRIBUTES
READ: Mapping[str, Callable[[Columns, SeriesKey, Any, Mapping[str, JsonValue]], None]] = {
    "histogram": _explicit,
    "exponential_histogram": _exponential,
    "gauge": _value,
    "sum": _value,
    "summary": _summary,
}
_KINDS: Mapping[str, Kind] = {
    "histogram": "moments",
    "exponential_histogram": "buckets",
    "gauge": "order",
    "sum": "moments",
    "summary": "moments",
}
