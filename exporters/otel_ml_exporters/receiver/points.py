"""OTLP metrics → observations, through upb and one pass of Python per point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.aggregation.observation import (
    Attributes,
    Buckets,
    ForeignPoint,
    Fragment,
    Kind,
    Manifest,
    Observation,
    Partials,
    Position,
    SeriesKey,
    Writer,
)
from otel_ml_exporters.receiver.coordinates import COORDINATES, DEFAULT_REDUCTION, Coordinates, coordinates
from otel_ml_exporters.receiver.explicit_buckets import exponential
from otel_ml_exporters.receiver.rejection import Rejections
from otel_ml_exporters.receiver.resource import seconds
from otel_ml_exporters.receiver.values import LONGEST_NAME, as_text, attributes, plain
from otel_ml_exporters.records import JsonValue

__all__ = ["MetricsDecoder"]

_NAN = math.nan
_SHAPES = 4096
"""Interned shapes; a role has a handful, a Collector that splits requests makes more."""

_TEMPORALITY: Mapping[int, Any] = {1: "delta", 2: "cumulative"}

Stats = tuple[float, float, float, float, float, float, float]


class _Columns:
    """Points under way into `Partials`: flat lists, because numpy takes them ten times faster than rows."""

    __slots__ = ("buckets", "series", "stats", "times")

    def __init__(self) -> None:
        self.series: list[SeriesKey] = []
        self.stats: list[float] = []
        self.times: list[int] = []
        self.buckets: dict[int, Buckets] = {}

    def __len__(self) -> int:
        return len(self.series)


class MetricsDecoder:
    """Decodes `ScopeMetrics` messages; equal shapes become the same object."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[SeriesKey, ...], tuple[SeriesKey, ...]] = {}

    def scope(self, writer: Writer, scope_metrics: Any, rejections: Rejections) -> list[Observation]:
        """Return the observations of one ScopeMetrics; what cannot be used is added to `rejections`."""
        scope = attributes(scope_metrics.scope.attributes)
        found = scope.get(wire.SEQ)
        seq = found if isinstance(found, int) and scope_metrics.scope.name == wire.SCOPE else None
        try:
            where = coordinates(scope)
            if seq is not None:
                return self._own(writer, scope_metrics.metrics, scope, where, seq, rejections)
        except (ValueError, WireError) as error:
            rejections.add(str(error), count_points(scope_metrics))
            return [] if seq is None else [self._nothing(writer, seq)]
        return self._foreign(writer, scope_metrics.metrics, where, rejections)

    # What a writer of ours sends

    def _own(
        self,
        writer: Writer,
        metrics: Any,
        scope: Mapping[str, JsonValue],
        where: Coordinates,
        seq: int,
        rejections: Rejections,
    ) -> list[Observation]:
        found: list[Observation] = []
        main = _Columns()
        groups: dict[Coordinates, _Columns] = {where: main}
        rejected_before = rejections.total
        for metric in metrics:
            if metric.name in _PROTOCOL:
                found += [_PROTOCOL[metric.name](writer, where, seq, point) for point in metric.gauge.data_points]
                continue
            kind, points = _points(metric, rejections)
            for point in points:
                try:
                    here, identity, values = _point_attributes(point, where)
                    columns = main if here is where else groups.setdefault(here, _Columns())
                    _READ[kind](columns, _series(metric.name, identity, kind), point, values)
                except (ValueError, WireError) as error:
                    rejections.add(str(error))
        announced = scope.get(wire.SEQ_POINTS)
        rejected = rejections.total - rejected_before
        total = announced - rejected if isinstance(announced, int) else sum(map(len, groups.values()))
        for here, columns in groups.items():
            if not columns:
                continue
            try:
                reduction = Reduction.parse(here.reduction or DEFAULT_REDUCTION)
            except WireError as error:
                rejections.add(str(error), len(columns))
                continue
            axis = None if here.step is None else here.axis
            found.append(Fragment(writer, axis, here.step, reduction, seq, total, self._partials(columns)))
        return found or [self._nothing(writer, seq)]

    def _nothing(self, writer: Writer, seq: int) -> Fragment:
        """Return what a rejected ScopeMetrics becomes: its running number is no gap that steps would wait for."""
        return Fragment(writer, None, None, Reduction.parse(DEFAULT_REDUCTION), seq, 0, self._partials(_Columns()))

    # What any other SDK sends

    def _foreign(self, writer: Writer, metrics: Any, scope: Coordinates, rejections: Rejections) -> list[Observation]:
        found: list[Observation] = []
        for metric in metrics:
            kind, points = _points(metric, rejections)
            for point in points:
                try:
                    found.append(self._foreign_point(writer, metric, kind, point, scope))
                except (ValueError, WireError) as error:
                    rejections.add(str(error))
        return found

    def _foreign_point(self, writer: Writer, metric: Any, kind: str, point: Any, scope: Coordinates) -> ForeignPoint:
        here, identity, values = _point_attributes(point, scope)
        columns = _Columns()
        name = metric.name.replace(":", "/")  # Prometheus' sign of a namespace: vllm:num_requests_running
        _READ[kind](columns, _series(name, identity, kind), point, values)
        data = getattr(metric, metric.WhichOneof("data"))
        return ForeignPoint(
            writer=writer,
            metric=name,
            attributes=identity,
            unit=metric.unit,
            kind=_FOREIGN_KINDS[kind],
            temporality="cumulative" if kind == "summary" else _TEMPORALITY.get(_temporality(kind, data), "none"),
            monotonic=data.is_monotonic if kind == "sum" else None,
            axis=None if here.step is None else here.axis,
            step=here.step,
            reduction=Reduction.parse(here.reduction) if here.reduction else None,
            start_ns=point.start_time_unix_nano,
            time_ns=point.time_unix_nano,
            partials=self._partials(columns),
        )

    def _partials(self, columns: _Columns) -> Partials:
        shape = tuple(columns.series)
        known = self._shapes.get(shape)
        if known is None:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
            known = self._shapes[shape] = shape
        points = len(columns)
        found = columns.buckets
        return Partials(
            series=known,
            stats=np.array(columns.stats, dtype=np.float64).reshape(points, 7),
            times=np.array(columns.times, dtype=np.int64).reshape(points, 2),
            buckets=tuple(found.get(row) for row in range(points)) if found else None,
        )


def count_points(scope_metrics: Any) -> int:
    """Return how many points a ScopeMetrics holds."""
    return sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for metric in scope_metrics.metrics
        if metric.WhichOneof("data")
    )


def _points(metric: Any, rejections: Rejections) -> tuple[str, Any]:
    kind = metric.WhichOneof("data")
    if kind is None:
        rejections.add(f"the metric {metric.name!r} is of no kind that OTLP has.")
        return "", ()
    return kind, getattr(metric, kind).data_points


def _point_attributes(point: Any, scope: Coordinates) -> tuple[Coordinates, Attributes, Mapping[str, JsonValue]]:
    """Split a point's attributes into coordinates (they win over the scope's), identity and values."""
    if not point.attributes:
        return scope, (), _NOTHING
    found = {pair.key: plain(pair.value) for pair in point.attributes}
    here = scope
    if not found.keys().isdisjoint(COORDINATES):
        own = coordinates(found)
        here = Coordinates(
            own.axis if wire.AXIS in found else scope.axis,
            own.step if wire.STEP in found else scope.step,
            own.reduction if wire.REDUCTION in found else scope.reduction,
        )
    identity = tuple(sorted((key, as_text(value)) for key, value in found.items() if key not in _RESERVED))
    return here, identity, found


def _series(name: str, identity: Attributes, kind: str) -> SeriesKey:
    length = len(name) + sum(len(key) + len(value) for key, value in identity)
    if length > LONGEST_NAME:
        raise ValueError(
            f"the metric {name[:60]!r}… and its attributes have {length} characters; expected at most {LONGEST_NAME}."
        )
    return SeriesKey(name, identity, _KINDS[kind])


def _moments(columns: _Columns, series: SeriesKey, point: Any, values: Mapping[str, JsonValue]) -> None:
    count, total = point.count, point.sum
    if count == 1 and point.HasField("sum"):
        low = high = total  # a sender may leave out min and max of a single value
    else:
        total = total if point.HasField("sum") else _NAN
        low = point.min if point.HasField("min") else _NAN
        high = point.max if point.HasField("max") else _NAN
    m2, wsum, wxsum = _extras(values) if values else _NO_EXTRAS
    _append(columns, series, point, (count, total, low, high, m2, wsum, wxsum))


def _explicit(columns: _Columns, series: SeriesKey, point: Any, values: Mapping[str, JsonValue]) -> None:
    _moments(columns, series, point, values)
    if point.explicit_bounds:
        buckets = exponential(tuple(point.explicit_bounds), tuple(point.bucket_counts))
        if buckets is not None:
            columns.buckets[len(columns) - 1] = buckets


def _exponential(columns: _Columns, series: SeriesKey, point: Any, values: Mapping[str, JsonValue]) -> None:
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


def _value(columns: _Columns, series: SeriesKey, point: Any, _values: Mapping[str, JsonValue]) -> None:
    kind = point.WhichOneof("value")
    if kind is None:
        raise ValueError(f"a point of {series.name!r} has no value; expected as_double or as_int.")
    value = float(getattr(point, kind))
    _append(columns, series, point, (1.0, value, value, value, *_NO_EXTRAS))


def _summary(columns: _Columns, series: SeriesKey, point: Any, _values: Mapping[str, JsonValue]) -> None:
    # Quantiles of different processes do not combine; count and sum do.
    _append(columns, series, point, (point.count, point.sum, _NAN, _NAN, *_NO_EXTRAS))


def _append(columns: _Columns, series: SeriesKey, point: Any, stats: Stats) -> None:
    last = point.time_unix_nano
    if last >= _INT64:
        raise ValueError(f"time_unix_nano={last} is beyond the year 2262.")
    first = point.start_time_unix_nano
    columns.series.append(series)
    columns.stats.extend(stats)
    columns.times.extend((first if 0 < first <= last else last, last))


def _extras(values: Mapping[str, JsonValue]) -> tuple[float, float, float]:
    return _number(values.get(wire.M2)), _number(values.get(wire.WSUM)), _number(values.get(wire.WXSUM))


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, (int, float)) else _NAN


def _temporality(kind: str, data: Any) -> int:
    return 0 if kind == "gauge" else int(data.aggregation_temporality)


def _manifest(writer: Writer, where: Coordinates, seq: int, point: Any) -> Manifest:
    if where.step is None or where.axis is None:
        raise ValueError(f"{wire.MANIFEST} needs {wire.STEP} on its scope.")
    return Manifest(writer, where.axis, where.step, _read_count(point), seq)


def _position(writer: Writer, where: Coordinates, seq: int, point: Any) -> Position:
    step = _read_count(point) if where.step is None else where.step
    taken = seconds(attributes(point.attributes).get(wire.BOOT_TIME)) if point.attributes else 0.0
    return Position(writer, where.axis or wire.DEFAULT_AXIS, step, seq, point.time_unix_nano, taken)


def _read_count(point: Any) -> int:
    value = getattr(point, point.WhichOneof("value") or "as_int")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a count.")
    return int(value)


_INT64 = 1 << 63
_SCALES = (-10, 20)
"""Of exponential histograms (OpenTelemetry's data model): at −10 one bucket holds every double above 1."""
_NOTHING: Mapping[str, JsonValue] = {}
_NO_EXTRAS = (_NAN, _NAN, _NAN)
_RESERVED = COORDINATES | wire.VALUE_ATTRIBUTES
_PROTOCOL: Mapping[str, Callable[[Writer, Coordinates, int, Any], Observation]] = {
    wire.MANIFEST: _manifest,
    wire.POSITION: _position,
}
_READ: Mapping[str, Callable[[_Columns, SeriesKey, Any, Mapping[str, JsonValue]], None]] = {
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
_FOREIGN_KINDS: Mapping[str, Any] = {
    "histogram": "histogram",
    "exponential_histogram": "exponential",
    "gauge": "gauge",
    "sum": "sum",
    "summary": "histogram",
}
