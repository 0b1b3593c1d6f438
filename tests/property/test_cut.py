"""Requests that are cut hold together what the whole one held, each with its scope and its metric's name."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
    Summary,
    SummaryDataPoint,
)
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from otel_ml.wire.attributes import POSITION, WATERMARK
from otel_ml.wire.protobuf import field
from otel_ml.wire.split_request import records_in, split_request

_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_sizes = st.integers(0, 2000)


def _attributes(size: int) -> list[KeyValue]:
    return [KeyValue(key="long", value=AnyValue(string_value="x" * size))]


def _histograms(sizes: list[int]) -> Histogram:
    points = [HistogramDataPoint(count=i, sum=i, attributes=_attributes(size)) for i, size in enumerate(sizes)]
    return Histogram(data_points=points, aggregation_temporality=_DELTA)


def _numbers(sizes: list[int]) -> list[NumberDataPoint]:
    return [NumberDataPoint(as_double=i, attributes=_attributes(size)) for i, size in enumerate(sizes)]


def _exponential(sizes: list[int]) -> ExponentialHistogram:
    points = [ExponentialHistogramDataPoint(count=i, attributes=_attributes(size)) for i, size in enumerate(sizes)]
    return ExponentialHistogram(data_points=points, aggregation_temporality=_DELTA)


def _summary(sizes: list[int]) -> Summary:
    return Summary(
        data_points=[SummaryDataPoint(count=i, attributes=_attributes(size)) for i, size in enumerate(sizes)]
    )


_points = st.lists(_sizes, max_size=5)
_metrics = st.one_of(
    st.builds(lambda name, sizes: Metric(name=name, gauge=Gauge(data_points=_numbers(sizes))), st.text(), _points),
    st.builds(
        lambda name, sizes: Metric(name=name, sum=Sum(data_points=_numbers(sizes), is_monotonic=True)),
        st.text(),
        _points,
    ),
    st.builds(lambda name, sizes: Metric(name=name, unit="s", histogram=_histograms(sizes)), st.text(), _points),
    st.builds(lambda name, sizes: Metric(name=name, exponential_histogram=_exponential(sizes)), st.text(), _points),
    st.builds(lambda name, sizes: Metric(name=name, summary=_summary(sizes)), st.text(), _points),
)
_scopes = st.builds(
    lambda seq, metrics: ScopeMetrics(
        scope=InstrumentationScope(name="otel_ml", attributes=[KeyValue(key="ml.seq", value=AnyValue(int_value=seq))]),
        metrics=metrics,
        schema_url="https://schema",
    ),
    st.integers(1, 1000),
    st.lists(_metrics, max_size=5),
)


def _payload(scopes: list[bytes]) -> bytes:
    return b"".join(field(2, scope) for scope in scopes)


def _flat(payload: bytes) -> list[tuple[bytes, str, bytes]]:
    """Each data point with all that stands around it."""
    flat = []
    for scope in ResourceMetrics.FromString(payload).scope_metrics:
        around = scope.scope.SerializeToString() + scope.schema_url.encode()
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            for point in data.data_points:
                alone = Metric()
                alone.CopyFrom(metric)
                inner = getattr(alone, kind)
                del inner.data_points[:]
                inner.data_points.add().CopyFrom(point)
                flat.append((around, kind, alone.SerializeToString(deterministic=True)))
    return flat


@given(st.lists(_scopes, max_size=4), st.integers(1, 6000))
def test_no_point_is_lost_or_twice_or_in_another_place(scopes: list[ScopeMetrics], most: int) -> None:
    payload = _payload([scope.SerializeToString() for scope in scopes])

    parts = split_request("M", payload, most)

    assert [point for part in parts for point in _flat(part)] == _flat(payload)
    assert sum(records_in("M", part) for part in parts) == records_in("M", payload) == len(_flat(payload))


@given(st.lists(_scopes, min_size=1, max_size=4))
def test_what_is_just_as_large_as_it_may_be_stays_whole_and_a_byte_more_is_cut(scopes: list[ScopeMetrics]) -> None:
    payload = _payload([scope.SerializeToString() for scope in scopes])

    assert split_request("M", payload, len(payload)) == [payload]
    if len(scopes) > 1:
        first, second = split_request("M", payload, len(payload) - 1)
        assert first + second == payload


@given(st.lists(_scopes, max_size=4), st.integers(1, 6000))
def test_a_part_that_is_too_large_holds_one_point(scopes: list[ScopeMetrics], most: int) -> None:
    for part in split_request("M", _payload([scope.SerializeToString() for scope in scopes]), most):
        assert len(part) <= most or len(_flat(part)) <= 1


@given(st.lists(st.lists(_sizes, max_size=5), max_size=4), st.integers(1, 3000))
def test_log_records_and_spans_are_kept_whole(sizes: list[list[int]], most: int) -> None:
    logs = [ScopeLogs(log_records=[LogRecord(event_name="e" * size) for size in some]) for some in sizes]
    spans = [ScopeSpans(spans=[Span(name="s" * size) for size in some]) for some in sizes]

    of_logs = split_request("L", _payload([scope.SerializeToString() for scope in logs]), most)
    of_spans = split_request("S", _payload([scope.SerializeToString() for scope in spans]), most)

    found = [
        [len(record.event_name) for scope in ResourceLogs.FromString(part).scope_logs for record in scope.log_records]
        for part in of_logs
    ]
    assert list(chain(*found)) == list(chain(*sizes))
    assert all(len(some) <= 1 or len(part) <= most for some, part in zip(found, of_logs, strict=True))
    names = [s.name for part in of_spans for scope in ResourceSpans.FromString(part).scope_spans for s in scope.spans]
    assert names == ["s" * size for some in sizes for size in some]


@given(_sizes, st.integers(0, 20), st.integers(1, 6), _sizes)
def test_each_part_holds_as_many_as_fit(size: int, count: int, fit: int, more: int) -> None:
    one = _payload([ScopeMetrics(metrics=[Metric(name="x" * size)]).SerializeToString()])

    parts = split_request("M", one * count, fit * len(one) + more % len(one))

    whole, rest = divmod(count, fit)
    assert parts == [one * fit] * whole + [one * rest] * (rest > 0 or count == 0)


@given(st.lists(st.sampled_from([WATERMARK, POSITION, "loss", "unit"]), max_size=8))
def test_points_of_the_protocol_are_no_values_whatever_else_is_called_so(names: list[str]) -> None:
    gauge = Gauge(data_points=_numbers([0, 0]))
    metrics = [Metric(name=name, unit=WATERMARK, description=POSITION, gauge=gauge) for name in names]

    found = records_in("M", _payload([ScopeMetrics(metrics=metrics).SerializeToString()]))

    assert found == 2 * sum(name in {"loss", "unit"} for name in names)


def test_who_cuts_a_large_request_rests_now_and_then() -> None:
    payload = _payload([ScopeMetrics(metrics=[Metric(name="x")] * 1000).SerializeToString()])
    rests: list[None] = []

    split_request("M", payload, 100, lambda: rests.append(None))

    assert 2 <= len(rests) <= 10
