"""What is taken without decoding it is what decoding it gives: the fast path of the receiver against upb."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml_exporters.aggregation.observation import ForeignPoint, Fragment, Observation
from otel_ml_exporters.aggregation.points import Packed
from otel_ml_exporters.receiver.decode import Decoder
from otel_ml_exporters.receiver.rejection import UndecodableError
from tests.otlp import START, FakeWriter, set_attributes

SHAPES: Sequence[Sequence[str]] = (("loss",), ("loss", "lr", "tokens"), ("lr", "loss", "tokens"), ())
EVERY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
NUMBERS = st.integers(0, 2**63 - 1)


def decoded_by_upb(body: bytes) -> Any:
    """Decode with nothing but upb."""
    return Decoder()._decoded("metrics", body, ExportMetricsServiceRequest.FromString(body))


def plain(observation: Observation) -> object:
    """Return an observation as something that can be compared, NaN too."""
    if not isinstance(observation, (Fragment, ForeignPoint)):
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
    for name in draw(st.sampled_from([(), ("last",)])):
        gauge = request.resource_metrics[0].scope_metrics[0].metrics.add(name=name).gauge
        gauge.data_points.add(as_double=draw(EVERY_FLOAT), time_unix_nano=draw(NUMBERS))
    return request


@given(st.lists(requests(), min_size=1, max_size=12))
def test_any_requests_give_what_decoding_gives(stream: list[Any]) -> None:
    decoder = Decoder()
    for _ in range(3):  # at the third time every form is known
        for request in stream:
            body = request.SerializeToString()
            assert_same(decoder.protobuf("metrics", body), decoded_by_upb(body))


@given(requests(), st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=3))
def test_bytes_that_were_changed_on_the_way_give_what_decoding_gives(request: Any, changes: Any) -> None:
    decoder, body = Decoder(), request.SerializeToString()
    for _ in range(3):
        decoder.protobuf("metrics", body)
    changed = bytearray(body)
    for place, byte in changes:
        changed[place % len(changed)] = byte

    try:
        slow = decoded_by_upb(bytes(changed))
    except DecodeError:
        slow = None
    try:
        fast = decoder.protobuf("metrics", bytes(changed))
    except UndecodableError:
        fast = None

    assert (fast is None) == (slow is None)
    if fast is not None:
        assert_same(fast, slow)


def test_the_third_step_of_a_role_is_not_decoded_any_more_whichever_rank_sends_it() -> None:
    decoder = Decoder()
    for rank in (0, 1):
        decoder.protobuf("metrics", FakeWriter(rank=rank).step(7, {"loss": 0.5, "lr": 0.1}).SerializeToString())

    third = decoder.protobuf("metrics", FakeWriter(rank=2).step(8, {"loss": 2.5, "lr": 0.2}).SerializeToString())

    fragment, _manifest = third.observations["run-1"]
    assert isinstance(fragment, Fragment)
    assert isinstance(fragment.partials, Packed)
    assert fragment.partials.stats[:, 1].tolist() == [2.5, 0.2]
    assert fragment.partials.newest_ns == START + 8 * 10**9
    assert np.array_equal(fragment.partials.times[:, 0], fragment.partials.times[:, 1])
