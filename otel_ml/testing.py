"""For tests of code that records: what was recorded, without a service, a network or a file.

```python
def test_the_loss_falls(otel_ml_capture):
    train(steps=3)
    assert otel_ml_capture.values("loss") == [3.0, 2.0, 1.0]
```

Installed as a pytest plugin: the fixture is there where otel_ml is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pytest

from otel_ml._internal.lifecycle.isolation import isolated
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.series.definition import FLUSHED
from otel_ml._internal.transport.answer import Answer
from otel_ml._internal.transport.link import Reached
from otel_ml.exceptions import OtelMLError
from otel_ml.wire.attributes import WSUM, WXSUM
from otel_ml.wire.reduction import Reduction

__all__ = ["Capture", "Event", "Point", "capture", "otel_ml_capture"]


@dataclass(frozen=True, slots=True)
class Point:
    """One metric at one step of one rank: all its records folded, in however many parts they were sent.

    Attributes:
        reduction: the metric's reduction in the grammar of docs/protocol.md §2.8, `mean`, `sum>max`, ….
        value: sum of the records (moments), or the last of them.
        min: smallest record, or `value` where only one was made.
        weights: Σw and Σwx where a record had a weight and the reduction takes it, as `mean` does; one without
            counts as 1.
    """

    rank: int
    axis: str | None
    step: int | None
    name: str
    reduction: str
    attributes: Mapping[str, Any]
    count: int
    value: float
    min: float
    max: float
    weights: tuple[float, float] | None = None

    @property
    def mean(self) -> float:
        """Mean of the records, by their weights; NaN where these are all 0."""
        total, value = self.weighed
        return value / total if total else math.nan

    @property
    def weighed(self) -> tuple[float, float]:
        """Σw and Σwx of the records, of which one without a weight counts as 1."""
        return (self.count, self.value) if self.weights is None else self.weights


@dataclass(frozen=True, slots=True)
class Event:
    """A log record: params, text, a table, an image, an event of the user's."""

    rank: int
    kind: str
    name: str | None
    axis: str | None
    step: int | None
    body: Any
    attributes: Mapping[str, Any]


class Capture:
    """What was recorded since the capture began. Each question first takes what is still in the buffers."""

    def __init__(self, transport: _Memory) -> None:
        self._transport = transport

    @property
    def points(self) -> list[Point]:
        """All points, in the order first sent; watermarks, positions and flushes of nothing are left out."""
        self._flush()
        return _folded(self._transport.points)

    @property
    def events(self) -> list[Event]:
        """All events, in the order sent."""
        self._flush()
        return list(self._transport.events)

    @property
    def spans(self) -> list[str]:
        """Names of all finished spans, in the order sent."""
        self._flush()
        return list(self._transport.spans)

    @property
    def notices(self) -> list[str]:
        """What was said: each mistake once."""
        return [str(event.body) for event in self.events if event.kind == "ml.notice"]

    def values(self, name: str, *, axis: str = "step", rank: int | None = None) -> list[float]:
        """Return the mean of the records of `name` at each step, steps ascending, all ranks pooled.

        Records count by their weights, as in the run; a step whose weights are all 0 has no value.
        """
        sums: dict[int, tuple[float, float]] = {}
        for point in self.points:
            if point.name == name and point.axis == axis and point.step is not None and rank in {None, point.rank}:
                sums[point.step] = _sum(sums.get(point.step, (0.0, 0.0)), point.weighed)
        return [sums[step][1] / sums[step][0] for step in sorted(sums) if sums[step][0]]

    @contextmanager
    def rank(self, rank: int) -> Iterator[None]:
        """Let what is recorded inside count as another rank's."""
        self._flush()
        before, self._transport.rank = self._transport.rank, rank
        try:
            yield
        finally:
            self._flush()
            self._transport.rank = before

    def _flush(self) -> None:
        if not RUNTIME.flush(10.0):
            raise OtelMLError(
                "The run has ended, or is stuck. Ask what was captured inside the capture.", slug="testing-capture"
            )


class _Memory:
    """A receiver in memory; also the link to itself."""

    is_starting = False
    is_served = False
    serves_here = False

    def __init__(self) -> None:
        self.rank: int | None = None
        self.points: list[_Sent] = []
        self.events: list[Event] = []
        self.spans: list[str] = []

    def reach(self, now: float, *, failing_s: float) -> Reached | None:
        del now, failing_s
        return Reached(self, "memory")

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        del timeout
        take = {"/v1/metrics": self._metrics, "/v1/traces": self._traces, "/v1/logs": self._logs}
        take[path](body)
        return Answer("ok")

    def get(self, path: str, timeout: float) -> bytes | None:
        del path, timeout
        return None

    def close(self) -> None:
        """Nothing is open."""

    def forget(self) -> None:
        """Nothing is shared."""

    def _metrics(self, body: bytes) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            rank = self._rank_of(resource)
            for scope in resource.scope_metrics:
                about = _attributes(scope.scope.attributes)
                for metric in scope.metrics:
                    # Watermarks and positions are called `otel_ml.…`, counts of otel_ml `otel_ml/…`.
                    if not metric.name.startswith("otel_ml.") and metric.name != FLUSHED.definition.name:
                        self.points.extend(_points(metric, rank, about))

    def _logs(self, body: bytes) -> None:
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

        for resource in ExportLogsServiceRequest.FromString(body).resource_logs:
            for scope in resource.scope_logs:
                for record in scope.log_records:
                    about = _attributes(record.attributes)
                    about.pop("ml.seq", None)
                    self.events.append(
                        Event(
                            rank=self._rank_of(resource),
                            kind=record.event_name,
                            name=about.pop("ml.name", None),
                            axis=about.pop("ml.step.axis", None),
                            step=about.pop("ml.step", None),
                            body=_value(record.body),
                            attributes=about,
                        )
                    )

    def _traces(self, body: bytes) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(span.name for span in scope.spans)

    def _rank_of(self, resource: Any) -> int:
        return int(_attributes(resource.resource.attributes).get("ml.rank", 0)) if self.rank is None else self.rank


@dataclass(frozen=True, slots=True)
class _Sent:
    """A point of one request: a part of what its rank recorded of that metric at that step."""

    point: Point
    is_gauge: bool
    time_ns: int

    @property
    def key(self) -> tuple[Any, ...]:
        """What parts of one point have in common."""
        point = self.point
        about = (point.rank, point.axis, point.step, point.name, point.reduction)
        return (*about, repr(sorted(point.attributes.items())), self.is_gauge)


def _points(metric: Any, rank: int, about: Mapping[str, Any]) -> Iterator[_Sent]:
    data = getattr(metric, metric.WhichOneof("data"))
    for point in data.data_points:
        attributes = _attributes(point.attributes)
        is_gauge = hasattr(point, "as_double")
        value = float(point.as_double or point.as_int) if is_gauge else point.sum
        found = Point(
            rank=rank,
            axis=about.get("ml.step.axis"),
            step=about.get("ml.step"),
            name=metric.name,
            reduction=about.get("ml.reduction", ""),
            attributes={key: item for key, item in attributes.items() if not key.startswith("ml.")},
            # A Gauge has no count: it is one record, the first or the last (docs/protocol.md §4.4).
            count=1 if is_gauge else point.count,
            value=value,
            min=value,
            max=value,
            weights=None if is_gauge else _weights(attributes, about.get("ml.reduction", "")),
        )
        # Both ends are optional in OTLP: without them they stay the sum.
        has_range = not is_gauge and point.HasField("min")
        found = replace(found, min=point.min, max=point.max) if has_range else found
        yield _Sent(found, is_gauge, point.time_unix_nano)


def _weights(attributes: Mapping[str, Any], reduction: str) -> tuple[float, float] | None:
    has_part = WSUM in attributes and Reduction.parse(reduction).takes_weights
    return (attributes[WSUM], attributes[WXSUM]) if has_part else None


def _sum(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


def _folded(parts: list[_Sent]) -> list[Point]:
    """Fold the parts of each point: when the background thread collected must not be seen in a test."""
    together: dict[tuple[Any, ...], list[_Sent]] = {}
    for part in parts:
        together.setdefault(part.key, []).append(part)
    return [point for same in together.values() for point in (_ordered(same) if same[0].is_gauge else [_summed(same)])]


def _summed(same: list[_Sent]) -> Point:
    points = [part.point for part in same]
    return replace(
        points[0],
        count=sum(point.count for point in points),
        value=sum(point.value for point in points),
        min=min(point.min for point in points),
        max=max(point.max for point in points),
        weights=reduce(_sum, (point.weighed for point in points)) if any(point.weights for point in points) else None,
    )


def _ordered(same: list[_Sent]) -> list[Point]:
    """Return the first and the last of what was recorded, those that the reduction asks for."""
    in_time = sorted(same, key=lambda part: part.time_ns)
    edges = Reduction.parse(in_time[0].point.reduction).edges
    asked = [in_time[0]] if "first" in edges else []
    # A part that is alone is the first and the last, and is one point.
    asked += [in_time[-1]] if "last" in edges and in_time[-1] not in asked else []
    # A gauge whose reduction asks for no edge has its last value.
    return [part.point for part in asked or in_time[-1:]]


def _value(any_value: Any) -> Any:
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in any_value.array_value.values]
    if kind == "kvlist_value":
        return _attributes(any_value.kvlist_value.values)
    return None if kind is None else getattr(any_value, kind)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


@contextmanager
def capture(**arguments: Any) -> Iterator[Capture]:
    """Record into memory inside the block, in a run of its own; mistakes are reported, not raised.

    It knows nothing of runs before it in this process, but what `define_metric()` said before it.

    Args:
        **arguments: as for `otel_ml.init()`.

    Raises:
        OtelMLError: a run is active in this process.
    """
    transport = _Memory()
    before = RUNTIME.make_link
    with _environ({"OTEL_ML_CAPTURE": "off", "OTEL_ML_CONSOLE": "off", "OTEL_ML_FLUSH_INTERVAL": "10"}):
        if RUNTIME.is_active:
            raise OtelMLError(
                "A run is active in this process. Call otel_ml.shutdown() before capturing.", slug="testing-capture"
            )
        RUNTIME.make_link = lambda config, identity, say: transport
        with isolated():
            try:
                RUNTIME.init(arguments)
                assert RUNTIME.current is not None
                RUNTIME.current.is_explicit = False  # whatever run the program asks for, it is captured
                yield Capture(transport)
            finally:
                RUNTIME.shutdown(5.0)
                RUNTIME.make_link = before


@contextmanager
def _environ(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture
def otel_ml_capture() -> Iterator[Capture]:
    """What the code under test records; see `otel_ml.testing.Capture`."""
    with capture() as captured:
        yield captured
