"""Points of other SDKs → observations: those of one kind and step together.

An SDK sends the same attributes with every export. What they say is worked out once and found again by what they
are, so that a point costs the reading of its attributes, and no parsing of what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from otel_ml.exceptions import WireError
from otel_ml.wire import attributes as wire
from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import VALUE_ATTRIBUTES
from otel_ml_exporters.records import JsonValue
from otel_ml_service.aggregation.observation import (
    Attributes,
    Observation,
    SeriesKey,
    Temporality,
    ThirdPartyKind,
    ThirdPartyPoints,
    Writer,
)
from otel_ml_service.receiver.columns import READ, Columns, Shapes, point_attributes, points_of, series_of
from otel_ml_service.receiver.own_names import require_others
from otel_ml_service.receiver.partial_success import Rejections
from otel_ml_service.receiver.point_coordinates import Coordinates

__all__ = ["Sender", "ThirdPartyDecoder"]

_KNOWN = 65_536
"""Sets of attributes remembered: more series than a run takes without a word."""

_NO_RECORDED_VALUE = 1
"""Flag of a point that has no value, whatever its other fields are (OTLP, `DataPointFlags`)."""

_LONGEST_KNOWN = 1024
"""Characters of a set that is remembered."""


class Sender(NamedTuple):
    """Whose points they are: the process, and which of its instrumentation scopes (`scope_id`)."""

    writer: Writer
    scope: str


class _Known(NamedTuple):
    """What a set of attributes means, but for the step; `series` is filled as metrics come with it."""

    axis: str | None
    reduction: str | None
    identity: Attributes
    series: dict[tuple[str, str], SeriesKey]


class _Form(NamedTuple):
    """What a metric says about its points."""

    name: str
    field: str
    kind: ThirdPartyKind
    temporality: Temporality
    monotonic: bool | None


class _Group:
    """Points of one kind, step and reduction."""

    __slots__ = ("columns", "series", "starts")

    def __init__(self) -> None:
        self.columns = Columns()
        self.starts: list[int] = []
        self.series: set[SeriesKey] = set()


class _GroupKey(NamedTuple):
    axis: str | None
    step: int | None
    reduction: str | None
    kind: ThirdPartyKind
    temporality: Temporality
    monotonic: bool | None


class ThirdPartyDecoder:
    """Decodes metrics without running numbers.

    Args:
        shapes: interns series.
    """

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._known: dict[object, _Known] = {}

    def scope(self, sender: Sender, metrics: Any, scope: Coordinates, rejections: Rejections) -> list[Observation]:
        """Return the observations of one ScopeMetrics; what cannot be used is added to `rejections`."""
        found: list[Observation] = []
        groups: dict[_GroupKey, _Group] = {}
        for metric in metrics:
            field, points = points_of(metric, rejections)
            if not points:
                continue
            form = _form(metric, field)
            for point in points:
                if point.flags & _NO_RECORDED_VALUE:
                    continue  # says that a series has ended, or that a scrape failed
                try:
                    self._point(sender, form, point, scope, groups, found)
                except (ValueError, WireError) as error:
                    rejections.add(str(error))
        found += [self._together(sender, key, group) for key, group in groups.items() if group.starts]
        return found

    def _point(
        self,
        sender: Sender,
        form: _Form,
        point: Any,
        scope: Coordinates,
        groups: dict[_GroupKey, _Group],
        found: list[Observation],
    ) -> None:
        step, known, values = self._attributes(point, scope)
        # Kept with the attributes, so that a point costs one look-up of these and one of its metric.
        series = known.series.get((form.name, form.field))
        if series is None:
            series = known.series[form.name, form.field] = _series_of_others(form, known.identity)
        axis = None if step is None else known.axis
        key = _GroupKey(axis, step, known.reduction, form.kind, form.temporality, form.monotonic)
        group = groups.get(key)
        if group is None:
            if known.reduction:
                Reduction.parse(known.reduction)  # or it is rejected here, point by point
            group = groups[key] = _Group()
        elif series in group.series:  # a fragment has a series once: the fold relies on it
            found.append(self._together(sender, key, group))
            group = groups[key] = _Group()
        # It raises before it appends anything: columns, series and starts stay equally long.
        READ[form.field](group.columns, series, point, values)
        group.series.add(series)
        group.starts.append(point.start_time_unix_nano)

    def _attributes(self, point: Any, scope: Coordinates) -> tuple[int | None, _Known, Mapping[str, JsonValue]]:
        """Return the step, what else the attributes mean, and values that are neither coordinates nor an identity."""
        step, kinds = scope.step, []
        for pair in point.attributes:
            value = pair.value
            kind = value.WhichOneof("value")
            if kind == "int_value" and pair.key == wire.STEP and value.int_value >= 0:
                step = value.int_value
            else:  # 1, 1.0 and True are equal, and are not the same attribute
                kinds.append((pair.key, kind, getattr(value, kind) if kind in _SCALARS else None))
        # Without the step, which is new with each message; under another scope the same attributes mean something else.
        memo = scope.axis, scope.reduction, *kinds
        known = self._known.get(memo)
        if known is not None:
            return step, known, _NOTHING
        here, identity, values = point_attributes(point, scope)
        known = _Known(here.axis, here.reduction, identity, {})
        if _may_be_known(kinds, values):
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[memo] = known
        return here.step, known, values

    def _together(self, sender: Sender, key: _GroupKey, group: _Group) -> ThirdPartyPoints:
        return ThirdPartyPoints(
            writer=sender.writer,
            kind=key.kind,
            temporality=key.temporality,
            monotonic=key.monotonic,
            axis=key.axis,
            step=key.step,
            reduction=Reduction.parse(key.reduction) if key.reduction else None,
            starts=tuple(group.starts),
            partials=self._shapes.partials(group.columns),
            scope=sender.scope,
        )


def _form(metric: Any, field: str) -> _Form:
    data = getattr(metric, field)
    said = 0 if field in {"gauge", "summary"} else int(data.aggregation_temporality)
    return _Form(
        metric.name.replace(":", "/"),  # Prometheus' sign of a namespace: vllm:num_requests_running
        field,
        _KINDS[field],
        "cumulative" if field == "summary" else _TEMPORALITY.get(said, "none"),
        data.is_monotonic if field == "sum" else None,
    )


def _series_of_others(form: _Form, identity: Attributes) -> SeriesKey:
    """Return the series of a point of another program.

    Raises:
        ValueError: it would be published as a part of otel_ml's own account, or its names are too long.
    """
    require_others("/".join((form.name, *(text for pair in identity for text in pair))))
    return series_of(form.name, identity, form.field)


def _may_be_known(kinds: list[tuple[str, str | None, Any]], values: Mapping[str, JsonValue]) -> bool:
    """Whether equal attributes always mean the same, and are worth the memory."""
    if any(kind not in _SCALARS or key == wire.STEP for key, kind, _ in kinds):
        return False
    if not values.keys().isdisjoint(VALUE_ATTRIBUTES):
        return False
    return sum(len(key) + len(str(value)) for key, _, value in kinds) <= _LONGEST_KNOWN


_SCALARS = frozenset({"string_value", "bool_value", "int_value", "double_value"})
_NOTHING: Mapping[str, JsonValue] = {}
_TEMPORALITY: Mapping[int, Temporality] = {1: "delta", 2: "cumulative"}
_KINDS: Mapping[str, ThirdPartyKind] = {
    "histogram": "histogram",
    "exponential_histogram": "exponential",
    "gauge": "gauge",
    "sum": "sum",
    "summary": "histogram",
}
