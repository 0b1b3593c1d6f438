"""Closed steps → an `ExportMetricsServiceRequest`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics, ScopeMetrics

from otel_ml_exporters.records import RunInfo, StepRecord

__all__ = ["SCOPE", "encoded"]

SCOPE = "otel_ml.steps"
"""Scope of closed steps; what ranks send is of the scope `otel_ml`."""


def encoded(run: RunInfo, records: Sequence[StepRecord]) -> ExportMetricsServiceRequest:
    """Return a request with one ResourceMetrics for each role and one gauge point for each value.

    The resource has no `ml.experiment.id` on purpose: a service of otel_ml, should one be behind the endpoint, then
    refuses what is reduced already instead of reducing it again, for ever.
    """
    request = ExportMetricsServiceRequest()
    for role in dict.fromkeys(record.role for record in records):
        resource = request.resource_metrics.add()
        _describe(resource, run, role)
        scope = resource.scope_metrics.add()
        scope.scope.name = SCOPE
        _add_points(scope, (record for record in records if record.role == role))
    return request


def _describe(resource: ResourceMetrics, run: RunInfo, role: str) -> None:
    described = {
        "service.name": role,
        "service.instance.id": run.id,  # what Prometheus tells senders apart by; it leaves out what it does not know
        "ml.run.id": run.id,
        "ml.run.name": run.name,
        "ml.experiment.name": run.experiment,
    }
    resource.resource.attributes.extend(_pairs(described))


def _add_points(scope: ScopeMetrics, records: Iterable[StepRecord]) -> None:
    # A metric stands once in a scope, with a point for each step.
    by_name: dict[str, list[StepRecord]] = {}
    for record in records:
        for name in record.values:
            by_name.setdefault(name, []).append(record)
    for name, found in by_name.items():
        metric = scope.metrics.add()
        metric.name = name
        for record in found:
            point = metric.gauge.data_points.add()
            point.as_double = float(record.values[name])
            point.time_unix_nano = round(record.time * 1e9)
            point.attributes.extend(_pairs(_place(record)))


def _place(record: StepRecord) -> Mapping[str, str | int | bool]:
    place: dict[str, str | int | bool] = {
        "ml.step": record.step,
        "ml.step.axis": record.axis,
        "ml.attempt": record.attempt,
        "ml.seq": record.seq,
    }
    return {**place, "ml.amendment": True} if record.amendment else place


def _pairs(values: Mapping[str, str | int | bool]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_any(value)) for key, value in values.items()]


def _any(value: str | int | bool) -> AnyValue:
    # Before int, which True is, too.
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
