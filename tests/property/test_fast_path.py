"""What is taken without decoding it is what decoding it gives: the fast path of the receiver against upb."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_ml.wire.protobuf import field
from otel_ml_exporters.aggregation.observation import ForeignPoint, ForeignPoints, Fragment, Observation, Spans
from otel_ml_exporters.aggregation.points import Packed
from otel_ml_exporters.receiver.decode import Decoder, Signal
from otel_ml_exporters.receiver.rejection import UndecodableError
from tests.otlp import START, FakeWriter, foreign, set_attributes

SHAPES: Sequence[Sequence[str]] = (("loss",), ("loss", "lr", "tokens"), ("lr", "loss", "tokens"), ())
EVERY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
NUMBERS = st.integers(0, 2**63 - 1)
CHANGES = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=3)


def decoded_by_upb(body: bytes, signal: Signal = "metrics") -> Any:
    """Decode with nothing but upb."""
    request = ExportMetricsServiceRequest if signal == "metrics" else ExportTraceServiceRequest
    return Decoder()._decoded(signal, body, request.FromString(body))


def as_the_collector_writes_it(message: Any) -> bytes:
    """Encode a message with its fields in descending order; of a span, parent and status though they are empty."""
    given = {descriptor.number: (descriptor, value) for descriptor, value in message.ListFields()}
    parts = []
    for number in sorted({*given, *([4, 15] if isinstance(message, Span) else [])}, reverse=True):
        descriptor, value = given.get(number, (None, b""))
        if descriptor is None:
            parts.append(field(number, b""))
        elif descriptor.message_type is None:
            alone = type(message)(**{descriptor.name: value})
            parts.append(alone.SerializeToString())
        else:
            several = value if descriptor.is_repeated else [value]
            parts += [field(number, as_the_collector_writes_it(one)) for one in several]
    return b"".join(parts)


ENCODERS = (lambda message: message.SerializeToString(), as_the_collector_writes_it)


def plain(observation: Observation) -> object:
    """Return an observation as something that can be compared, NaN too."""
    if isinstance(observation, Spans):
        return observation.writer, list(observation.spans)
    if not isinstance(observation, (Fragment, ForeignPoint, ForeignPoints)):
        return observation
    points = observation.partials.unpack()
    rows = [[None if math.isnan(value) else value for value in row] for row in points.stats.tolist()]
    rest = {one.name: getattr(observation, one.name) for one in fields(observation) if one.name != "partials"}
    return rest, points.series, rows, points.times.tolist(), points.buckets


def assert_same(fast: Any, slow: Any) -> None:
    assert {key: list(map(plain, found)) for key, found in fast.observations.items()} == {
        key: list(map(plain, found)) for key, found in slow.observations.items()
    }
    assert fast.rejections.reasons == slow.rejections.reasons
    assert fast.rejections.experiments == slow.rejections.experiments


@st.composite
def requests(draw: st.DrawFn) -> Any:
    """A step of one rank: Histograms of one or several records, weights, Gauges, and its manifest."""
    writer = FakeWriter(rank=draw(st.integers(0, 2)), seq=draw(st.sampled_from([0, 5, 120, 20_000])))
    names = draw(st.sampled_from(SHAPES))
    step = draw(st.sampled_from([0, 1, 127, 128, 70_000]))
    request = writer.step(step, {name: draw(EVERY_FLOAT) for name in names}, axis=draw(st.sampled_from(["step", "v"])))
    kind = draw(st.sampled_from(["single", "several", "weighted", "attributes"]))
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        point = metric.histogram.data_points[0]
        point.start_time_unix_nano, point.time_unix_nano = draw(NUMBERS), draw(NUMBERS)
        if kind != "single":
            point.count, point.min, point.max = draw(st.integers(0, 2**64 - 1)), draw(EVERY_FLOAT), draw(EVERY_FLOAT)
        if kind == "weighted":
            set_attributes(point.attributes, {"ml.wsum": draw(EVERY_FLOAT), "ml.wxsum": draw(EVERY_FLOAT)})
        if kind == "attributes":
            set_attributes(point.attributes, {"task": "math"})
    if draw(st.booleans()):
        heartbeat = request.resource_metrics[0].scope_metrics.add()
        heartbeat.CopyFrom(request.resource_metrics[0].scope_metrics[1])
        heartbeat.metrics[0].name = "otel_ml.position"
        if draw(st.booleans()):
            attributes = heartbeat.metrics[0].gauge.data_points[0].attributes
            set_attributes(attributes, {"ml.boot.time": draw(EVERY_FLOAT)})
    for name in draw(st.sampled_from([(), ("last",)])):
        gauge = request.resource_metrics[0].scope_metrics[0].metrics.add(name=name).gauge
        gauge.data_points.add(as_double=draw(EVERY_FLOAT), time_unix_nano=draw(NUMBERS))
    return request


@given(st.lists(st.tuples(requests(), st.sampled_from(ENCODERS)), min_size=1, max_size=12))
def test_any_requests_give_what_decoding_gives(stream: list[Any]) -> None:
    decoder = Decoder()
    for _ in range(3):  # at the third time every form is known
        for request, encoded in stream:
            body = encoded(request)
            assert_same(decoder.protobuf("metrics", body), decoded_by_upb(body))


@given(requests(), st.sampled_from(ENCODERS), CHANGES)
def test_bytes_that_were_changed_on_the_way_give_what_decoding_gives(
    request: Any, encoded: Callable[[Any], bytes], changes: Any
) -> None:
    decoder, body = Decoder(), encoded(request)
    for _ in range(3):
        decoder.protobuf("metrics", body)

    assert_same_fate(decoder, changed(body, changes), "metrics")


@st.composite
def span_requests(draw: st.DrawFn) -> Any:
    """Timers as a worker sends them, and spans of others."""
    writer = FakeWriter(rank=draw(st.integers(0, 2)), role=draw(st.sampled_from(["trainer", 'a"b', "größe"])))
    request = writer.span("", 0)
    del request.resource_spans[0].scope_spans[0].spans[:]
    for number in range(draw(st.integers(0, 4))):
        span = request.resource_spans[0].scope_spans[0].spans.add(name=draw(st.text(max_size=140)), kind=1)
        span.trace_id, span.span_id = draw(st.binary(min_size=16, max_size=16)), number.to_bytes(8, "big")
        span.parent_span_id = draw(st.sampled_from([b"", b"parent!!"]))
        span.start_time_unix_nano, span.end_time_unix_nano = draw(NUMBERS), draw(NUMBERS)
        set_attributes(span.attributes, draw(st.sampled_from(SPAN_ATTRIBUTES)))
        if draw(st.booleans()):
            span.status.code = 2
    return request


SPAN_ATTRIBUTES: Sequence[dict[str, Any]] = (
    {"ml.timer.level": 1, "ml.step": 7, "ml.step.axis": "step"},
    {"ml.timer.level": 2},
    {"ml.timer.level": 1, "ml.step": 3, "ml.step.axis": "step", "task": "math", "k": 1.5},
    {"ml.timer.level": 1, "ml.step": -3},
    {"http.method": "GET"},
)


@given(span_requests(), st.sampled_from(ENCODERS))
def test_any_spans_give_what_decoding_gives(request: Any, encoded: Callable[[Any], bytes]) -> None:
    body = encoded(request)
    assert_same(Decoder().protobuf("traces", body), decoded_by_upb(body, "traces"))


@given(span_requests(), st.sampled_from(ENCODERS), CHANGES)
def test_spans_that_were_changed_on_the_way_give_what_decoding_gives(
    request: Any, encoded: Callable[[Any], bytes], changes: Any
) -> None:
    assert_same_fate(Decoder(), changed(encoded(request), changes), "traces")


def changed(body: bytes, changes: Any) -> bytes:
    damaged = bytearray(body)
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    return bytes(damaged)


def assert_same_fate(decoder: Decoder, body: bytes, signal: Signal) -> None:
    try:
        slow = decoded_by_upb(body, signal)
    except DecodeError:
        slow = None
    try:
        fast = decoder.protobuf(signal, body)
    except UndecodableError:
        fast = None

    assert (fast is None) == (slow is None)
    if fast is not None:
        assert_same(fast, slow)


@pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])
def test_the_third_step_of_a_role_is_not_decoded_any_more_whichever_rank_sends_it(
    encoded: Callable[[Any], bytes],
) -> None:
    decoder = Decoder()
    for rank in (0, 1):
        decoder.protobuf("metrics", encoded(FakeWriter(rank=rank).step(7, {"loss": 0.5, "lr": 0.1})))

    third = decoder.protobuf("metrics", encoded(FakeWriter(rank=2).step(8, {"loss": 2.5, "lr": 0.2})))

    fragment, _manifest = third.observations["run-1"]
    assert isinstance(fragment, Fragment)
    assert isinstance(fragment.partials, Packed)
    assert fragment.partials.stats[:, 1].tolist() == [2.5, 0.2]
    assert fragment.partials.newest_ns == START + 8 * 10**9
    assert np.array_equal(fragment.partials.times[:, 0], fragment.partials.times[:, 1])


@given(
    st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["a", "b"]), "value": st.floats(allow_nan=False)},
            optional={
                "ml.step": st.sampled_from([0, 1, 128, -1, 1.5, "7", True]),
                "ml.reduction": st.sampled_from(["max", "mean,p99", "nonsense"]),
                "of": st.sampled_from([1, 1.0, True, "1"]),
                "ml.axis": st.sampled_from(["step", "eval", ""]),
            },
        ),
        max_size=12,
    )
)
def test_attributes_of_others_that_are_known_already_give_what_reading_them_gives(sent: list[dict[str, Any]]) -> None:
    body = foreign(sent).SerializeToString()
    decoder = Decoder()
    decoder.protobuf("metrics", body)

    assert_same(decoder.protobuf("metrics", body), Decoder().protobuf("metrics", body))
