"""Points that came after the fold state of their step was gone, as the requests that `late.otlp` holds; replayable."""

from __future__ import annotations

import math
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml.wire import attributes as wire
from otel_ml.wire.reductions import STATISTICS
from otel_ml_service.aggregation.observation import (
    Fragment,
    Partials,
    Sent,
    ThirdPartyPoints,
    Writer,
)
from otel_ml_service.aggregation.points import ExplicitBuckets

__all__ = ["as_request"]

_DELTA = 1
_TEMPORALITY = {"delta": _DELTA, "cumulative": 2}


def as_request(late: Sent) -> Any:
    """Return a request that decodes to `late` again."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    _set_attributes(resource.resource.attributes, _resource(late.writer))
    scope = resource.scope_metrics.add()
    where: dict[str, Any] = {wire.STEP: late.step, wire.AXIS: late.axis}
    if late.reduction is not None:
        # What nobody asked for gives way to what another writer says, in a replay as in the run.
        where |= {wire.REDUCTION: str(late.reduction), wire.REDUCTION_DEFAULT: ",".join(late.reduction.unsaid) or None}
    if isinstance(late, Fragment):
        scope.scope.name = wire.SCOPE
        where |= {wire.SEQ: late.seq, wire.SEQ_POINTS: late.seq_points}
        partials = late.partials.unpack()
        for row in range(len(partials.series)):
            _add_point(scope.metrics.add(), partials, row)
    elif isinstance(late, ThirdPartyPoints):
        scope.scope.name = late.scope
        partials = late.partials.unpack()
        for row, start_ns in enumerate(late.starts):
            metric = scope.metrics.add()
            _add_point(metric, partials, row)
            _set_kind(metric, late, partials, row, start_ns)
    _set_attributes(scope.scope.attributes, where)
    return request


def _set_kind(metric: Any, late: ThirdPartyPoints, partials: Partials, row: int, start_ns: int) -> None:
    """Make a point of `metric` again what the other SDK sent, as far as it counts."""
    # A metric has one kind of data: the gauge that `_add_point` has made goes with this.
    if late.kind == "sum":
        value, time_ns = float(partials.stats[row, 1]), int(partials.times[row, 1])
        metric.sum.is_monotonic = bool(late.monotonic)
        point = metric.sum.data_points.add(as_double=value, time_unix_nano=time_ns)
        _set_attributes(point.attributes, dict(partials.series[row].attributes))
    data = getattr(metric, metric.WhichOneof("data"))
    data.data_points[0].start_time_unix_nano = start_ns
    if late.kind != "gauge":
        data.aggregation_temporality = _TEMPORALITY.get(late.temporality, 0)


def _add_point(metric: Any, partials: Partials, row: int) -> None:
    series = partials.series[row]
    count, total, low, high, *more = partials.stats[row].tolist()
    metric.name = series.name
    if series.kind == "order":
        point = metric.gauge.data_points.add(as_double=total)
    else:
        data = metric.histogram if series.kind == "moments" else metric.exponential_histogram
        data.aggregation_temporality = _DELTA
        point = data.data_points.add(count=int(count), sum=total)
        # Of a single value these are the sum, from which whoever reads the request takes them.
        if count != 1:
            point.min, point.max = low, high
        _set_buckets(point, partials, row)
    point.start_time_unix_nano, point.time_unix_nano = (int(value) for value in partials.times[row])
    keys = [statistic.key for statistic in STATISTICS if statistic.key]
    told = {key: value for key, value in zip(keys, more, strict=True) if not math.isnan(value)}
    _set_attributes(point.attributes, told)
    _set_attributes(point.attributes, dict(series.attributes))


def _set_buckets(point: Any, partials: Partials, row: int) -> None:
    buckets = partials.buckets[row] if partials.buckets is not None else None
    if buckets is None:
        return
    if isinstance(buckets, ExplicitBuckets):
        point.explicit_bounds.extend(buckets.bounds)
        point.bucket_counts.extend(buckets.counts)
        return
    point.scale, point.zero_count = buckets.scale, buckets.zero_count
    point.positive.offset, point.negative.offset = buckets.positive_offset, buckets.negative_offset
    point.positive.bucket_counts.extend(buckets.positive)
    point.negative.bucket_counts.extend(buckets.negative)


def _resource(writer: Writer) -> dict[str, Any]:
    found: dict[str, Any] = {
        wire.EXPERIMENT_ID: writer.experiment,
        wire.EXPERIMENT_NAME: writer.experiment_name or None,
        wire.RUN_NAME: writer.run_name or None,
        wire.ROLE: writer.role or None,
        wire.INSTANCE: writer.instance,
        wire.RANK: writer.rank,
        wire.WORLD_SIZE: writer.world_size,
        wire.LOCAL_RANK: writer.local_rank,
        wire.ATTEMPT: writer.attempt,
        wire.PARENT: writer.parent,
        wire.STARTER: writer.starter,
        wire.HOST: writer.host or None,
        wire.PID: writer.pid or None,
        # An empty text is something that was said, unlike None: the role is not part of published names.
        wire.PREFIX: None if writer.with_role else "",
    }
    for dim, coordinate, size in writer.topology:
        found[wire.TOPOLOGY_PREFIX + dim] = coordinate
        found[wire.TOPOLOGY_PREFIX + dim + wire.TOPOLOGY_SIZE_SUFFIX] = size or None
    return found


def _set_attributes(target: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        if value is None:
            continue
        pair = target.add(key=key)
        if isinstance(value, int):
            pair.value.int_value = value
        elif isinstance(value, float):
            pair.value.double_value = value
        else:
            pair.value.string_value = value
