"""One job, always the same: what its processes send until its service is killed, and afterwards.

It holds what a service remembers: steps that are open, a request that a Collector has split, quantiles, texts, weights,
parameters, final values, spans, a restart, values that come late and too late, and streams of another SDK.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.otlp import SECOND, START, FakeWriter, set_attributes

__all__ = ["EXPERIMENT", "Request", "after", "before"]

EXPERIMENT = "upgraded"
RANKS = 3
CUT = 8
"""The first step that rank 0 sends after the upgrade; the others are behind it."""
STEPS = 14


class Request(NamedTuple):
    """What is posted."""

    signal: str
    body: bytes


class Rank(FakeWriter):
    """Sends a mean, a sum, a timer, quantiles, weights and a standard deviation at each step."""

    def whole(self, step: int) -> Request:
        request = ExportMetricsServiceRequest()
        resource = request.resource_metrics.add()
        set_attributes(resource.resource.attributes, self.resource())
        base = 1.0 + step + self.rank / 8
        self._points(resource, step, {"loss": base, "accuracy": base / 100}, "step", "mean")
        self._points(resource, step, {"tokens": 64.0 * (self.rank + 1)}, "step", "sum")
        self._points(resource, step, {"time/step": base / 10}, "step", "sum>max,mean,argmax")
        self._points(resource, step, {"grad": base, "last/lr": 1 / base}, "step", "min,max,std,rank")
        self._quantiles(resource, step, base)
        self._weighted(resource, step, base)
        self._manifest(resource, step, self.sent, "step")
        self.sent = 0
        return Request("metrics", request.SerializeToString())

    sent = 0

    def _points(self, resource: Any, step: int, values: Any, axis: str, reduction: str) -> None:
        super()._points(resource, step, values, axis, reduction)
        self.sent += len(values)

    def _quantiles(self, resource: Any, step: int, base: float) -> None:
        scope = self._scope(resource, step, "step", {"ml.reduction": "p50,p99", "ml.seq.points": 1})
        data = scope.metrics.add(name="latency").exponential_histogram
        data.aggregation_temporality = 1
        point = data.data_points.add(count=6, sum=6 * base, min=base / 2, max=base * 2, scale=6)
        point.positive.offset = 10 * self.rank
        point.positive.bucket_counts.extend([1, 2, 3])
        point.start_time_unix_nano = point.time_unix_nano = START + step * SECOND
        self.sent += 1

    def _weighted(self, resource: Any, step: int, base: float) -> None:
        scope = self._scope(resource, step, "step", {"ml.reduction": "mean,std", "ml.seq.points": 1})
        data = scope.metrics.add(name="ce").histogram
        data.aggregation_temporality = 1
        point = data.data_points.add(count=4, sum=4 * base, min=base - 1, max=base + 1)
        set_attributes(point.attributes, {"ml.m2": 2.0, "ml.wsum": 8.0, "ml.wxsum": 8 * base, "task": "math"})
        point.start_time_unix_nano = point.time_unix_nano = START + step * SECOND
        self.sent += 1


def ranks(attempt: int = 0) -> list[Rank]:
    extra = {"ml.attempt": attempt, "ml.topology.dp": 0, "ml.topology.dp.size": 2, "ml.experiment.name": "job"}
    return [Rank(EXPERIMENT, rank, RANKS, instance=f"trainer-{rank}-{attempt}", extra=extra) for rank in range(RANKS)]


def sidecar(step: int, total: float) -> Request:
    """Return a cumulative sum of another SDK."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    facts = {"ml.experiment.id": EXPERIMENT, "service.name": "loader", "service.instance.id": "loader-0"}
    set_attributes(resource.resource.attributes, facts)
    scope = resource.scope_metrics.add()
    scope.scope.name = "my.loader"
    data = scope.metrics.add(name="files").sum
    data.aggregation_temporality, data.is_monotonic = 2, True
    point = data.data_points.add(as_double=total, time_unix_nano=START + step * SECOND)
    point.start_time_unix_nano = START
    set_attributes(point.attributes, {"ml.step": 0, "ml.step.axis": "epoch"})
    return Request("metrics", request.SerializeToString())


def halves(request: Request) -> tuple[Request, Request]:
    """Split a request as a Collector does: the two points of its first ScopeMetrics come apart."""
    first, second = ExportMetricsServiceRequest(), ExportMetricsServiceRequest()
    first.ParseFromString(request.body)
    second.CopyFrom(first)
    del first.resource_metrics[0].scope_metrics[0].metrics[1:]
    del second.resource_metrics[0].scope_metrics[0].metrics[:1]
    del second.resource_metrics[0].scope_metrics[1:]
    return Request("metrics", first.SerializeToString()), Request("metrics", second.SerializeToString())


def _everything() -> Iterator[tuple[bool, Request]]:
    """Yield each request, with whether it is sent before the service is killed."""
    old, new = ranks(0), ranks(1)
    for writer in old:
        params = {"lr": 0.1, "model": {"depth": 4}, "seed": writer.rank}
        yield True, Request("logs", writer.event("ml.params", params).SerializeToString())
        yield True, Request("logs", writer.event("ml.summary", {"best": 0.5 + writer.rank}).SerializeToString())
    held = None
    for step in range(5):  # the first attempt: rank 2 sends its step 1 late, and step 4 is never complete
        for writer in old[: 2 if step == 4 else RANKS]:
            request = writer.whole(step)
            if (step, writer.rank) == (1, 2):
                held = request
            else:
                yield True, request
        yield True, Request("traces", old[0].span("forward", step).SerializeToString())
    assert held is not None
    yield True, held
    for step in range(3, STEPS):  # the second one begins at step 3
        for writer in new:
            is_before = step < CUT - 2 * (writer.rank == 2)
            request = writer.whole(step)
            if (step, writer.rank) == (CUT - 1, 1):
                first, second = halves(request)
                yield True, first
                yield False, second
            else:
                yield is_before, request
        yield step < CUT, sidecar(step, 10.0 * step)
    yield True, Request("logs", new[0].event("ml.text", "half of it", {"ml.name": "note"}).SerializeToString())
    for writer in new:
        yield False, Request("logs", writer.event("ml.summary", {"best": 0.75}).SerializeToString())
    for writer in (*old, *new):
        yield False, Request("logs", writer.goodbye().SerializeToString())


def before() -> list[Request]:
    """Return what is sent until the service is killed."""
    return [request for is_before, request in _everything() if is_before]


def after() -> list[Request]:
    """Return what is sent to the one that goes on."""
    return [request for is_before, request in _everything() if not is_before]
