"""OTLP metrics → observations, through upb and one pass of Python per point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
from otel_ml_exporters.receiver.rejection import Rejections
from otel_ml_exporters.receiver.values import as_text, attributes, plain
from otel_ml_exporters.records import JsonValue

__all__ = ["MetricsDecoder"]

_NAN = math.nan
_SHAPES = 4096
"""Interned shapes; a role has a handful, a Collector that splits requests makes more."""

_DEFAULT_REDUCTION = "mean"

_TEMPORALITY: Mapping[int, Any] = {1: "delta", 2: "cumulative"}

Stats = tuple[float, float, float, float, float, float, float]


class Coordinates(NamedTuple):
    """What a scope or a point says about where it belongs."""

    axis: str | None
    step: int | None
    reduction: str | None


class _Row(NamedTuple):
    series: SeriesKey
    stats: Stats
    first_ns: int
    last_ns: int
    buckets: Buckets | None


class MetricsDecoder:
    """Decodes `ScopeMetrics` messages; keeps one object per series and per shape."""

    def __init__(self) -> None:
        self._series: dict[SeriesKey, SeriesKey] = {}
        self._shapes: dict[tuple[SeriesKey, ...], tuple[SeriesKey, ...]] = {}

    def scope(self, writer: Writer, scope_metrics: Any, rejections: Rejections) -> list[Observation]:
        """Return the observations of one ScopeMetrics; what cannot be used is added to `rejections`."""
        scope = attributes(scope_metrics.scope.attributes)
        try:
            where = coordinates(scope)
            seq = scope.get(wire.SEQ)
            if scope_metrics.scope.name == wire.SCOPE and isinstance(seq, int):
                return self._own(writer, scope_metrics.metrics, scope, where, seq, rejections)
        except (ValueError, WireError) as error:
            rejections.add(str(error), count_points(scope_metrics))
            return []
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
        groups: dict[Coordinates, list[_Row]] = {}
        for metric in metrics:
            if metric.name in _PROTOCOL:
                found += [_PROTOCOL[metric.name](writer, where, seq, point) for point in metric.gauge.data_points]
                continue
            for kind, point in _points(metric, rejections):
                try:
                    here, identity, values = _point_attributes(point, where)
                    row = _READ[kind](SeriesKey(metric.name, identity, _KINDS[kind]), point, values)
                    groups.setdefault(here, []).append(row)
                except (ValueError, WireError) as error:
                    rejections.add(str(error))
        announced = scope.get(wire.SEQ_POINTS)
        total = announced if isinstance(announced, int) else sum(map(len, groups.values()))
        for here, rows in groups.items():
            try:
                reduction = Reduction.parse(here.reduction or _DEFAULT_REDUCTION)
            except WireError as error:
                rejections.add(str(error), len(rows))
                continue
            axis = None if here.step is None else here.axis
            found.append(Fragment(writer, axis, here.step, reduction, seq, total, self._partials(rows)))
        return found

    # What any other SDK sends

    def _foreign(self, writer: Writer, metrics: Any, scope: Coordinates, rejections: Rejections) -> list[Observation]:
        found: list[Observation] = []
        for metric in metrics:
            for kind, point in _points(metric, rejections):
                try:
                    found.append(self._foreign_point(writer, metric, kind, point, scope))
                except (ValueError, WireError) as error:
                    rejections.add(str(error))
        return found

    def _foreign_point(self, writer: Writer, metric: Any, kind: str, point: Any, scope: Coordinates) -> ForeignPoint:
        here, identity, values = _point_attributes(point, scope)
        row = _READ[kind](SeriesKey(metric.name, identity, _KINDS[kind]), point, values)
        data = getattr(metric, metric.WhichOneof("data"))
        return ForeignPoint(
            writer=writer,
            metric=metric.name,
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
            partials=self._partials([row]),
        )

    def _partials(self, rows: Sequence[_Row]) -> Partials:
        intern = self._series
        shape = tuple(intern.setdefault(row.series, row.series) for row in rows)
        known = self._shapes.get(shape)
        if known is None:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
                intern.clear()
            known = self._shapes[shape] = shape
        return Partials(
            series=known,
            stats=np.array([row.stats for row in rows], dtype=np.float64),
            times=np.array([(row.first_ns, row.last_ns) for row in rows], dtype=np.int64),
            buckets=tuple(row.buckets for row in rows) if any(row.buckets for row in rows) else None,
        )


def coordinates(found: Mapping[str, JsonValue]) -> Coordinates:
    """Read step, axis and reduction from attributes.

    Raises:
        ValueError: the step or the axis is not one.
    """
    step = found.get(wire.STEP)
    if step is not None and (not isinstance(step, int) or isinstance(step, bool) or step < 0):
        raise ValueError(f"{wire.STEP}={step!r} is no step; expected a whole number of at least 0.")
    axis = found.get(wire.AXIS, wire.DEFAULT_AXIS)
    if not isinstance(axis, str) or not axis:
        raise ValueError(f"{wire.AXIS}={axis!r} is no axis; expected a name such as 'step' or 'rollout'.")
    reduction = found.get(wire.REDUCTION)
    return Coordinates(axis, step, None if reduction is None else as_text(reduction))


def count_points(scope_metrics: Any) -> int:
    """Return how many points a ScopeMetrics holds."""
    return sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for metric in scope_metrics.metrics
        if metric.WhichOneof("data")
    )


def _points(metric: Any, rejections: Rejections) -> list[tuple[str, Any]]:
    kind = metric.WhichOneof("data")
    if kind is None:
        rejections.add(f"the metric {metric.name!r} is of no kind that OTLP has.")
        return []
    return [(kind, point) for point in getattr(metric, kind).data_points]


def _point_attributes(point: Any, scope: Coordinates) -> tuple[Coordinates, Attributes, Mapping[str, JsonValue]]:
    """Split a point's attributes into coordinates (they win over the scope's), identity and values."""
    if not point.attributes:
        return scope, (), _NOTHING
    found = {pair.key: plain(pair.value) for pair in point.attributes}
    here = scope
    if not found.keys().isdisjoint(_COORDINATES):
        own = coordinates(found)
        here = Coordinates(
            own.axis if wire.AXIS in found else scope.axis,
            own.step if wire.STEP in found else scope.step,
            own.reduction if wire.REDUCTION in found else scope.reduction,
        )
    identity = tuple(sorted((key, as_text(value)) for key, value in found.items() if key not in _RESERVED))
    return here, identity, found


def _moments(series: SeriesKey, point: Any, values: Mapping[str, JsonValue]) -> _Row:
    count, total = point.count, point.sum if point.HasField("sum") else _NAN
    alone = total if count == 1 else _NAN  # a sender may leave out min and max of a single value
    low = point.min if point.HasField("min") else alone
    high = point.max if point.HasField("max") else alone
    m2, wsum, wxsum = (_number(values.get(key)) for key in (wire.M2, wire.WSUM, wire.WXSUM)) if values else _NO_EXTRAS
    return _Row(series, (float(count), total, low, high, m2, wsum, wxsum), *_times(point), None)


def _exponential(series: SeriesKey, point: Any, values: Mapping[str, JsonValue]) -> _Row:
    buckets = Buckets(
        point.scale,
        point.zero_count,
        point.positive.offset,
        tuple(point.positive.bucket_counts),
        point.negative.offset,
        tuple(point.negative.bucket_counts),
    )
    return _moments(series, point, values)._replace(buckets=buckets)


def _value(series: SeriesKey, point: Any, _values: Mapping[str, JsonValue]) -> _Row:
    kind = point.WhichOneof("value")
    if kind is None:
        raise ValueError(f"a point of {series.name!r} has no value; expected as_double or as_int.")
    value = float(getattr(point, kind))
    return _Row(series, (1.0, value, value, value, _NAN, _NAN, _NAN), *_times(point), None)


def _summary(series: SeriesKey, point: Any, _values: Mapping[str, JsonValue]) -> _Row:
    # Quantiles of different processes do not combine; count and sum do.
    return _Row(series, (float(point.count), point.sum, _NAN, _NAN, _NAN, _NAN, _NAN), *_times(point), None)


def _times(point: Any) -> tuple[int, int]:
    last = point.time_unix_nano
    first = point.start_time_unix_nano or last
    if last >= _INT64:
        raise ValueError(f"time_unix_nano={last} is beyond the year 2262.")
    return (first, last) if first <= last else (last, last)


def _number(value: JsonValue) -> float:
    return float(value) if isinstance(value, (int, float)) else _NAN


def _temporality(kind: str, data: Any) -> int:
    return 0 if kind == "gauge" else int(data.aggregation_temporality)


def _manifest(writer: Writer, where: Coordinates, seq: int, point: Any) -> Manifest:
    if where.step is None or where.axis is None:
        raise ValueError(f"{wire.MANIFEST} needs {wire.STEP} on its scope.")
    return Manifest(writer, where.axis, where.step, int(_read_number(point)), seq)


def _position(writer: Writer, where: Coordinates, seq: int, point: Any) -> Position:
    step = int(_read_number(point)) if where.step is None else where.step
    return Position(writer, where.axis or wire.DEFAULT_AXIS, step, seq, point.time_unix_nano)


def _read_number(point: Any) -> float:
    value = getattr(point, point.WhichOneof("value") or "as_int")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a count.")
    return float(value)


_INT64 = 1 << 63
_NOTHING: Mapping[str, JsonValue] = {}
_NO_EXTRAS = (_NAN, _NAN, _NAN)
_COORDINATES = frozenset({wire.STEP, wire.AXIS, wire.REDUCTION})
_RESERVED = _COORDINATES | wire.VALUE_ATTRIBUTES
_PROTOCOL: Mapping[str, Callable[[Writer, Coordinates, int, Any], Observation]] = {
    wire.MANIFEST: _manifest,
    wire.POSITION: _position,
}
_READ: Mapping[str, Callable[[SeriesKey, Any, Mapping[str, JsonValue]], _Row]] = {
    "histogram": _moments,
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
