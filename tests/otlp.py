"""OTLP requests as a worker sends them, built with the OpenTelemetry protocol's own messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_ml.wire.spool_format import HEADER, Frame, encode_frame

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def set_attributes(target: Any, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        set_value(target.add(key=key).value, value)


def set_value(target: Any, value: Any) -> None:
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, Mapping):
        target.kvlist_value.SetInParent()
        set_attributes(target.kvlist_value.values, value)
    elif isinstance(value, (list, tuple)):
        target.array_value.SetInParent()
        for item in value:
            set_value(target.array_value.values.add(), item)
    elif value is not None:
        target.string_value = value


@dataclass
class FakeWriter:
    """One rank: numbers its ScopeMetrics and counts its points as the worker SDK does."""

    experiment: str = "run-1"
    rank: int = 0
    world_size: int = 1
    role: str = "trainer"
    instance: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0
    recorded: int = 0

    def resource(self) -> dict[str, Any]:
        return {
            "ml.experiment.id": self.experiment,
            "service.name": self.role,
            "service.instance.id": self.instance or f"{self.role}-{self.rank}",
            "ml.rank": self.rank,
            "ml.world_size": self.world_size,
            **self.extra,
        }

    def step(self, step: int, values: Mapping[str, float], *, axis: str = "step", reduction: str = "mean") -> Any:
        """Return the request of a whole step: its points and its watermark."""
        request = ExportMetricsServiceRequest()
        resource = request.resource_metrics.add()
        set_attributes(resource.resource.attributes, self.resource())
        self._points(resource, step, values, axis, reduction)
        self._manifest(resource, step, len(values), axis)
        return request

    def goodbye(self, status: str = "finished", dropped: Mapping[str, int] | None = None) -> Any:
        said = {"ml.status": status, "otel_ml.recorded": self.recorded, "otel_ml.dropped": dropped}
        return self.event("ml.writer.end", attributes={key: value for key, value in said.items() if value is not None})

    def event(self, name: str, body: Any = None, attributes: Mapping[str, Any] | None = None) -> Any:
        request = ExportLogsServiceRequest()
        resource = request.resource_logs.add()
        set_attributes(resource.resource.attributes, self.resource())
        scope = resource.scope_logs.add()
        scope.scope.name = "otel_ml"
        record = scope.log_records.add(event_name=name, time_unix_nano=START + self.seq * SECOND + self.rank)
        set_attributes(record.attributes, {"ml.seq": self._next(), **(attributes or {})})
        set_value(record.body, body)
        return request

    def span(self, name: str, step: int) -> Any:
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        set_attributes(resource.resource.attributes, self.resource())
        scope = resource.scope_spans.add()
        scope.scope.name = "otel_ml"
        span = scope.spans.add(name=name, trace_id=b"t" * 16, span_id=b"s" * 8)
        span.start_time_unix_nano, span.end_time_unix_nano = START, START + SECOND
        set_attributes(span.attributes, {"ml.step": step, "ml.step.axis": "step"})
        return request

    def _points(self, resource: Any, step: int, values: Mapping[str, float], axis: str, reduction: str) -> None:
        scope = self._scope(resource, step, axis, {"ml.reduction": reduction, "ml.seq.points": len(values)})
        for name, value in values.items():
            metric = scope.metrics.add(name=name)
            metric.histogram.aggregation_temporality = 1
            point = metric.histogram.data_points.add(count=1, sum=value)
            point.start_time_unix_nano = point.time_unix_nano = START + step * SECOND
        self.recorded += len(values)

    def _manifest(self, resource: Any, step: int, points: int, axis: str) -> None:
        scope = self._scope(resource, step, axis, {"ml.seq.points": 0})
        metric = scope.metrics.add(name="otel_ml.step.points")
        metric.gauge.data_points.add(as_int=points, time_unix_nano=START + step * SECOND)

    def _scope(self, resource: Any, step: int, axis: str, more: Mapping[str, Any]) -> Any:
        scope = resource.scope_metrics.add()
        scope.scope.name = "otel_ml"
        where = {"ml.step": step, "ml.step.axis": axis, "ml.seq": self._next()}
        set_attributes(scope.scope.attributes, {**where, **more})
        return scope

    def _next(self) -> int:
        self.seq += 1
        return self.seq


def third_party_request(
    points: Sequence[Mapping[str, Any]], resource: Mapping[str, Any] | None = None, *, kind: str = "gauge"
) -> Any:
    """Return gauges of another SDK, or sums of deltas: each point has `name`, `value` and any attributes."""
    request = ExportMetricsServiceRequest()
    found = request.resource_metrics.add()
    set_attributes(found.resource.attributes, {"ml.experiment.id": "run-1"} if resource is None else resource)
    scope = found.scope_metrics.add()
    scope.scope.name = "my.library"
    for given in points:
        data = getattr(scope.metrics.add(name=given["name"]), kind)
        if kind == "sum":
            data.aggregation_temporality, data.is_monotonic = 1, True
        point = data.data_points.add(as_double=given["value"])
        point.time_unix_nano = START
        set_attributes(point.attributes, {key: v for key, v in given.items() if key not in {"name", "value"}})
    return request


def write_spool(path: Path, writer: FakeWriter, steps: range) -> None:
    """Write what a worker would have sent, and was killed in the middle of writing."""
    first = writer.step(0, {}).resource_metrics[0].resource
    first.ClearField("attributes")
    set_attributes(first.attributes, writer.resource())
    frames = [Frame("R", first.SerializeToString())]
    writer.seq = 0
    for step in steps:
        for scope in writer.step(step, {"loss": 0.25}).resource_metrics[0].scope_metrics:
            body = scope.SerializeToString()
            frames.append(Frame("M", b"\x12" + _varint(len(body)) + body))
    path.write_bytes(HEADER + b"".join(encode_frame(frame) + frame.payload for frame in frames) + b"M torn")


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80, value >> 7])
