"""One job, always the same: what its processes send until its service is killed, and afterwards.

It holds what a service remembers: steps that are open, a request that a Collector has split, quantiles, texts, weights,
parameters, final values, spans, a restart, values that come late and too late, and streams of another SDK.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.otlp import SECOND, START, FakeWriter, set_attributes

__all__ = ["CUT", "EXPERIMENT", "Request", "after", "at_once", "late"]

EXPERIMENT = "upgraded"
RANKS = 3
CUT = 8
"""The first step that rank 0 sends after the upgrade; the others are behind it."""
STEPS = 14
POINTS = 8
"""Of a rank at a step."""


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

    def again(self, step: int) -> Request:
        """Record one value more at a step that has closed."""
        request = ExportMetricsServiceRequest()
        resource = request.resource_metrics.add()
        set_attributes(resource.resource.attributes, self.resource())
        self._points(resource, step, {"grad": 100.0}, "step", "min,max,std,rank")
        self._manifest(resource, step, POINTS + self.sent, "step")
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


AT_ONCE, LATE, AFTER = range(3)

Sent = Iterator[tuple[int, Request]]


def _everything() -> Sent:
    """Yield each request in the order in which its writer made it, with when it is sent."""
    old, new = ranks(0), ranks(1)
    yield from _first_attempt(old)
    yield from _second_attempt(new)
    for writer in new:
        yield AFTER, log(writer.event("ml.summary", {"best": 0.75}))
    for writer in (*old, *new):
        yield AFTER, log(writer.goodbye())


def _first_attempt(old: list[Rank]) -> Sent:
    """Rank 2 sends its step 1 behind the others, and step 4 is never complete."""
    for writer in old:
        yield AT_ONCE, log(writer.event("ml.params", {"lr": 0.1, "model": {"depth": 4}, "seed": writer.rank}))
        yield AT_ONCE, log(writer.event("ml.summary", {"best": 0.5 + writer.rank}))
    behind = []
    for step in range(5):
        for writer in old[: 2 if step == 4 else RANKS]:
            request = writer.whole(step)
            if (step, writer.rank) == (1, 2):
                behind.append(request)
            else:
                yield AT_ONCE, request
        yield AT_ONCE, Request("traces", old[0].span("forward", step).SerializeToString())
    yield AT_ONCE, behind[0]


def _second_attempt(new: list[Rank]) -> Sent:
    """It does step 4 again; rank 2 is behind when the service is killed, half of a request of rank 1 is under way."""
    for step in range(4, STEPS):
        for writer in new:
            request = writer.whole(step)
            if (step, writer.rank) == (CUT - 1, 1):
                first, second = halves(request)
                yield AT_ONCE, first
                yield AFTER, second
            else:
                yield AT_ONCE if step < CUT - 2 * (writer.rank == 2) else AFTER, request
        yield AT_ONCE if step < CUT else AFTER, sidecar(step, 10.0 * step)
        if step == CUT - 1:
            for closed in (4, CUT - 3):  # what was known of the first is given up by then, that of the second is not
                yield LATE, new[0].again(closed)
            yield LATE, log(new[0].event("ml.text", "half of it", {"ml.name": "note"}))


def log(request: Any) -> Request:
    """Return a request of log records."""
    return Request("logs", request.SerializeToString())


def at_once() -> list[Request]:
    """Return what is sent first, up to an open step."""
    return _sent(AT_ONCE)


def late() -> list[Request]:
    """Return what is sent when steps have closed, before the service is killed."""
    return _sent(LATE)


def after() -> list[Request]:
    """Return what is sent to the service that goes on."""
    return _sent(AFTER)


def _sent(at: int) -> list[Request]:
    return [request for when, request in _everything() if when == at]
