"""What is taken without decoding it is what decoding it gives: the fast path of the receiver against upb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml_service.aggregation.observation import Fragment, Position, Watermark
from otel_ml_service.aggregation.points import Packed
from otel_ml_service.receiver.decode import Decoder
from tests.otlp import START, FakeWriter, set_attributes, third_party_request
from tests.property.decoding import CHANGES, ENCODERS, NUMBERS, assert_same, assert_same_fate, changed, decoded_by_upb

SHAPES: Sequence[Sequence[str]] = (("loss",), ("loss", "lr", "tokens"), ("lr", "loss", "tokens"), ())
EVERY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    """A step of one rank: Histograms of one or several records, weights, Gauges, and its watermark."""
    writer = FakeWriter(rank=draw(st.integers(0, 2)), seq=draw(st.sampled_from([0, 5, 120, 20_000, 5_000_000, 2**62])))
    names = draw(st.sampled_from(SHAPES))
    step = draw(st.sampled_from([0, 1, 127, 128, 70_000, 3_000_077, 300_000_077]))
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


@pytest.mark.parametrize(
    ("attributes", "value"),
    [({"ml.step.axis": "rollout"}, 0), ({"ml.step.axis": "rollout"}, 7), ({"ml.step": 3}, 7), ({}, 7)],
)
def test_a_heartbeat_whose_scope_says_only_half_of_where_it_is_gives_what_decoding_gives(
    attributes: Any, value: int
) -> None:
    request = ExportMetricsServiceRequest()
    about = request.resource_metrics.add()
    set_attributes(about.resource.attributes, FakeWriter().resource())
    scope = about.scope_metrics.add()
    scope.scope.name = "otel_ml"
    set_attributes(scope.scope.attributes, {"ml.seq": 1, **attributes})
    scope.metrics.add(name="otel_ml.position").gauge.data_points.add(time_unix_nano=1, as_int=value)

    body = request.SerializeToString()
    assert_same(Decoder().protobuf("metrics", body), decoded_by_upb(body))


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
    body = third_party_request(sent).SerializeToString()
    decoder = Decoder()
    decoder.protobuf("metrics", body)

    assert_same(decoder.protobuf("metrics", body), Decoder().protobuf("metrics", body))


@pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])
@pytest.mark.parametrize(
    ("name", "attributes"),
    [("otel_ml.step.points", {}), ("otel_ml.position", {}), ("otel_ml.position", {"ml.boot.time": 2.5})],
    ids=["watermark", "heartbeat", "heartbeat with its time"],
)
def test_how_far_a_rank_is_is_never_decoded(
    encoded: Callable[[Any], bytes], name: str, attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rank says it every second."""
    request = FakeWriter(rank=3).step(7, {})
    del request.resource_metrics[0].scope_metrics[0]
    metric = request.resource_metrics[0].scope_metrics[0].metrics[0]
    metric.name = name
    set_attributes(metric.gauge.data_points[0].attributes, attributes)
    decoder = Decoder()
    monkeypatch.setattr(decoder, "_add", None)  # decodes

    [found] = decoder.protobuf("metrics", encoded(request)).observations["run-1"]

    assert isinstance(found, (Watermark, Position))
    assert (found.writer.rank, found.axis, found.step) == (3, "step", 7)
    assert [found] == decoded_by_upb(encoded(request)).observations["run-1"]
