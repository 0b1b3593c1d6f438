"""OTLP metrics → observations, through upb and one pass of Python per point."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import DEFAULT
from otel_ml_exporters.records import JsonValue
from otel_ml_service.aggregation.observation import Fragment, Observation, Position, Watermark, Writer
from otel_ml_service.receiver.attribute_values import as_text, attributes
from otel_ml_service.receiver.columns import READ, Columns, Shapes, point_attributes, points_of, series_of
from otel_ml_service.receiver.heartbeat import declared_of, kinds_of, totals_of
from otel_ml_service.receiver.partial_success import Rejections
from otel_ml_service.receiver.point_coordinates import COORDINATES, Coordinates, coordinates, reduction_of
from otel_ml_service.receiver.resource import seconds
from otel_ml_service.receiver.third_party import Sender, ThirdPartyDecoder

__all__ = ["MetricsDecoder"]


class MetricsDecoder:
    """Decodes `ScopeMetrics` messages; equal shapes become the same object.

    Attributes:
        shapes: interns series.
    """

    def __init__(self) -> None:
        self.shapes = Shapes()
        self._third_party = ThirdPartyDecoder(self.shapes)

    def scope(self, writer: Writer, scope_metrics: Any, rejections: Rejections) -> list[Observation]:
        """Return the observations of one ScopeMetrics; what cannot be used is added to `rejections`."""
        scope = attributes(scope_metrics.scope.attributes)
        # A running number means something in a scope of ours alone: the attribute of another program is just that.
        found = scope.get(wire.SEQ)
        seq = found if isinstance(found, int) and scope_metrics.scope.name == wire.SCOPE else None
        try:
            where = coordinates(scope)
            if seq is not None:
                return self._own(writer, scope_metrics.metrics, scope, where, seq, rejections)
        except (ValueError, WireError) as error:
            rejections.add(str(error), count_points(scope_metrics))
            return [] if seq is None else [self._nothing(writer, seq)]
        sender = Sender(writer, scope_id(scope_metrics.scope.name, scope_metrics.scope.version, scope))
        return self._third_party.scope(sender, scope_metrics.metrics, where, rejections)

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
        main = Columns()
        groups: dict[Coordinates, Columns] = {where: main}
        rejected_before = rejections.total
        # A position has no axis where its scope names none; a point without one is on the default axis.
        said = where if where.step is not None or wire.AXIS in scope else where._replace(axis=None)
        for metric in metrics:
            if metric.name in _PROTOCOL:
                found += [_PROTOCOL[metric.name](writer, said, seq, point) for point in metric.gauge.data_points]
                continue
            kind, points = points_of(metric, rejections)
            for point in points:
                try:
                    here, identity, values = point_attributes(point, where)
                    columns = main if here is where else groups.setdefault(here, Columns())
                    READ[kind](columns, series_of(metric.name, identity, kind), point, values)
                except (ValueError, WireError) as error:
                    rejections.add(str(error))
        announced = scope.get(wire.SEQ_POINTS)
        rejected = rejections.total - rejected_before
        # What is awaited under this number: all that the writer sent, wherever a Collector has cut it, but for what is
        # rejected here.
        total = announced - rejected if isinstance(announced, int) else sum(map(len, groups.values()))
        for here, columns in groups.items():
            if not columns:
                continue
            try:
                reduction = reduction_of(here)
            except WireError as error:
                rejections.add(str(error), len(columns))
                continue
            axis = None if here.step is None else here.axis
            found.append(Fragment(writer, axis, here.step, reduction, seq, total, self.shapes.partials(columns)))
        return found or [self._nothing(writer, seq)]

    def _nothing(self, writer: Writer, seq: int) -> Fragment:
        """Return what a rejected ScopeMetrics becomes: its running number is not a gap that steps would wait for."""
        return Fragment(writer, None, None, Reduction.parse(DEFAULT), seq, 0, self.shapes.partials(Columns()))


def count_points(scope_metrics: Any) -> int:
    """Return how many points a ScopeMetrics holds."""
    return sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for metric in scope_metrics.metrics
        if metric.WhichOneof("data")
    )


def _watermark(writer: Writer, where: Coordinates, seq: int, point: Any) -> Watermark:
    if where.step is None or where.axis is None:
        raise ValueError(f"{wire.WATERMARK} needs {wire.STEP} on its scope.")
    return Watermark(writer, where.axis, where.step, _read_count(point), seq)


def _position(writer: Writer, where: Coordinates, seq: int, point: Any) -> Position:
    step = _read_count(point) if where.step is None else where.step
    said = attributes(point.attributes)
    taken, totals = seconds(said.get(wire.BOOT_TIME)), totals_of(said)
    rest = point.time_unix_nano, taken, totals, declared_of(said), kinds_of(said)
    if where.step is None and where.axis is None and step == 0:
        return Position(writer, None, None, seq, *rest)
    return Position(writer, where.axis or wire.DEFAULT_AXIS, step, seq, *rest)


def _read_count(point: Any) -> int:
    # Without a value it is 0, as any number of protobuf that is not sent.
    value = getattr(point, point.WhichOneof("value") or "as_int")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a count.")
    return int(value)


_PROTOCOL: Mapping[str, Callable[[Writer, Coordinates, int, Any], Observation]] = {
    wire.WATERMARK: _watermark,
    wire.POSITION: _position,
}


_NO_IDENTITY = COORDINATES | {wire.SEQ, wire.SEQ_POINTS}

_LONGEST, _SHORTENED = 100, 80
"""Characters of a name that tells its scope apart alone, and of one that a digest follows."""


def scope_id(name: str, version: str, attributes: Mapping[str, JsonValue]) -> str:
    """Return what tells a scope from others of its writer; a scope of this name alone is told by it again.

    Two meters of a process with one name are two streams (docs/protocol.md §4.5).

    Examples:
        >>> scope_id("my.library", "", {"ml.step": 3})
        'my.library'
        >>> scope_id("my.library", "1.0", {})
        'my.library@fc50bdc0e6502914'
    """
    kept = sorted((key, as_text(value)) for key, value in attributes.items() if key not in _NO_IDENTITY)
    if not (version or kept) and len(name) <= _LONGEST:
        return name
    everything = repr((name, version, kept)).encode("utf-8", "surrogatepass")
    return f"{name[:_SHORTENED]}@{blake2b(everything, digest_size=8).hexdigest()}"
