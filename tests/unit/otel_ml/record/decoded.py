"""What travels, decoded by the official protobuf classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from otel_ml._internal.messages.recorder import Batch
from otel_ml.wire.reductions import VALUE_ATTRIBUTES

VALUES = VALUE_ATTRIBUTES


@dataclass(frozen=True)
class Point:
    step: int | None
    axis: str | None
    reduction: str | None
    seq: int
    name: str
    kind: str
    attributes: dict[str, Any]
    raw: Any

    @property
    def moments(self) -> tuple[int, float]:
        return self.raw.count, self.raw.sum

    @property
    def value(self) -> float:
        return self.raw.as_double if self.raw.HasField("as_double") else self.raw.as_int


def plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


def every_point(batch: Batch) -> Iterator[Point]:
    for body in batch.scope_metrics:
        scope = ScopeMetrics.FromString(body)
        known = plain(scope.scope.attributes)
        assert scope.scope.name == "otel_ml"
        found = []
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            scoped = (known.get("ml.step"), known.get("ml.step.axis"), known.get("ml.reduction"), known["ml.seq"])
            found += [
                Point(*scoped, metric.name, kind, plain(raw.attributes), raw)
                for raw in getattr(metric, kind).data_points
            ]
        assert known["ml.seq.points"] == len(found)
        yield from found


def points(batch: Batch, name: str | None = None) -> list[Point]:
    users = [point for point in every_point(batch) if not point.name.startswith("otel_ml.")]
    return [point for point in users if name is None or point.name == name]


def manifests(batch: Batch) -> dict[tuple[str | None, int | None], int]:
    return {
        (point.axis, point.step): point.raw.as_int
        for point in every_point(batch)
        if point.name == "otel_ml.step.points"
    }


def positions(batch: Batch) -> dict[str | None, int]:
    return {point.axis: point.raw.as_int for point in every_point(batch) if point.name == "otel_ml.position"}


def spans(batch: Batch) -> list[Span]:
    return [span for body in batch.scope_spans for span in ScopeSpans.FromString(body).spans]


def sums(batch: Batch) -> dict[tuple[str, int | None], float]:
    out: dict[tuple[str, int | None], float] = {}
    for point in points(batch):
        key = (point.name, point.step)
        out[key] = out.get(key, 0.0) + (point.value if point.kind == "gauge" else point.raw.sum)
    return out


def counts(batch, name):
    """Return step → number of records of the metric `name`."""
    return {point.step: point.raw.count for point in points(batch, name)}
