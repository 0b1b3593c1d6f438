"""What compiled code reads of another SDK's points is what the decoder makes of them: any kinds, steps, attributes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_ml_service.receiver.decode import Decoder
from tests.otlp import START, set_attributes, third_party_request
from tests.property.decoding import CHANGES, ENCODERS, assert_same, assert_same_fate, changed, decoded_by_upb

NUMBERS = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, math.inf]))
COUNTS = st.lists(st.one_of(st.integers(0, 300), st.just(2**62)), max_size=4)
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "ml.step": st.one_of(st.integers(0, 300), st.sampled_from([2**40, 2**63 - 1, -1, "7", 1.0])),
        "route": st.sampled_from(["/a", "/b", "/ü"]),
        "status": st.sampled_from([200, 500, True, 1.5]),
        "ml.step.axis": st.sampled_from(["step", "eval", ""]),
        "ml.reduction": st.sampled_from(["max", "mean,p50", "p50,mean", "nonsense"]),
        "ml.m2": st.just(2.0),
        "list": st.just(["a", 1]),
    },
)


@st.composite
def points(draw: st.DrawFn, metric: Any, kind: str) -> None:
    """Add points of a kind to a metric."""
    data = getattr(metric, kind)
    for _ in range(draw(st.integers(0, 4))):
        point = data.data_points.add()
        point.time_unix_nano = draw(st.sampled_from([START, START + 1, 0, 2**63]))
        point.start_time_unix_nano = draw(st.sampled_from([0, START - 5, START, 2**64 - 1]))
        point.flags = draw(st.sampled_from([0, 0, 0, 1, 2]))
        set_attributes(point.attributes, draw(ATTRIBUTES))
        if kind != "summary" and draw(st.integers(0, 5)) == 0:
            exemplar = point.exemplars.add(time_unix_nano=5, as_double=0.5, span_id=b"12345678")
            set_attributes(exemplar.filtered_attributes, draw(st.sampled_from([{}, {"of": "é"}])))
        if kind in {"gauge", "sum"}:
            if draw(st.booleans()):
                point.as_double = draw(NUMBERS)
            else:
                point.as_int = draw(st.integers(-(2**63), 2**63 - 1))
            continue
        point.count = draw(st.sampled_from([0, 1, 2, 2**60]))
        if kind == "summary" or draw(st.booleans()):
            point.sum = draw(NUMBERS)
        if kind != "summary" and draw(st.booleans()):
            point.min, point.max = draw(NUMBERS), draw(NUMBERS)
        if kind == "histogram":
            point.explicit_bounds.extend(draw(st.lists(NUMBERS, max_size=3)))
            point.bucket_counts.extend(draw(COUNTS))
        elif kind == "exponential_histogram":
            point.scale = draw(st.sampled_from([0, 6, -10, 20, -11, 21]))
            point.zero_count = draw(st.integers(0, 2**63))
            for side in (point.positive, point.negative):
                side.offset = draw(st.sampled_from([0, -5, 2**31 - 1, -(2**31)]))
                side.bucket_counts.extend(draw(COUNTS))


KINDS = ["gauge", "sum", "histogram", "exponential_histogram"]


@st.composite
def requests(draw: st.DrawFn, kinds: tuple[str, ...] = (*KINDS, "summary")) -> Any:
    """Return a request of one scope."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource.attributes, {"ml.experiment.id": "run-1", "service.name": "trainer"})
    scope = resource.scope_metrics.add(schema_url=draw(st.sampled_from(["", "https://schema", "ü"])))
    scope.scope.name = draw(st.sampled_from(["my.library", "otel_ml"]))
    set_attributes(scope.scope.attributes, draw(st.sampled_from([{}, {}, {"ml.step": 3, "ml.reduction": "max"}])))
    for _ in range(draw(st.integers(1, 4))):
        metric = scope.metrics.add(name=draw(st.sampled_from(["a", "b:c", "", "otel_ml/x"])))
        metric.description, metric.unit = draw(st.sampled_from([("", ""), ("Über", "s"), ("plain", "ms")]))
        kind = draw(st.sampled_from(kinds))
        draw(points(metric, kind))
        if kind not in {"gauge", "summary"}:
            getattr(metric, kind).aggregation_temporality = draw(st.sampled_from([0, 1, 2]))
        if kind == "sum":
            metric.sum.is_monotonic = draw(st.booleans())
    return request


@given(st.lists(requests(), min_size=1, max_size=4), st.sampled_from(ENCODERS))
@settings(max_examples=300)
def test_it_gives_what_decoding_gives(sent: list[Any], encoded: Callable[[Any], bytes]) -> None:
    decoder = Decoder()

    for request in sent:
        body = encoded(request)
        assert_same(decoder.protobuf("metrics", body), decoded_by_upb(body))


@given(requests(), st.sampled_from(ENCODERS), st.lists(CHANGES, min_size=1, max_size=8))
@settings(max_examples=300)
def test_bytes_that_are_changed_on_the_way_meet_the_same_fate(
    request: Any, encoded: Callable[[Any], bytes], every: list[Any]
) -> None:
    decoder = Decoder()
    decoder.protobuf("metrics", encoded(request))

    for changes in every:
        assert_same_fate(decoder, changed(encoded(request), changes), "metrics")


def message(number: int, kind: str) -> bytes:
    """Return points of several steps, of which some are new each time."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    set_attributes(resource.resource.attributes, {"ml.experiment.id": "run-1", "service.name": "trainer"})
    scope = resource.scope_metrics.add()
    scope.scope.name = "my.library"
    metric = scope.metrics.add(name="latency", unit="ms")
    data = getattr(metric, kind)
    for step in range(number, number + 3):
        for route in ("/a", f"/{number}"):
            point = data.data_points.add(time_unix_nano=START + number, start_time_unix_nano=START - 5)
            set_attributes(point.attributes, {"route": route, "ml.step": step})
            if kind in {"gauge", "sum"}:
                point.as_double = 0.5 + step
                continue
            point.count, point.sum = 3, 4.5
            if kind == "histogram":
                point.explicit_bounds.extend([1.0, 5.0])
                point.bucket_counts.extend([1, 2, number])
            else:
                point.scale, point.positive.offset = 6, -number
                point.positive.bucket_counts.extend(range(number))
            point.exemplars.add(time_unix_nano=5, as_int=3, span_id=b"12345678", trace_id=b"1" * 16)
    return request.SerializeToString()


@pytest.mark.parametrize("kind", KINDS)
def test_points_of_several_steps_and_new_attributes_are_not_decoded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = Decoder()
    decoder.protobuf("metrics", message(1, kind))
    monkeypatch.setattr(decoder, "_add", None)  # decodes

    for number in (2, 3, 40):
        assert_same(decoder.protobuf("metrics", message(number, kind)), decoded_by_upb(message(number, kind)))


def test_attributes_that_are_new_each_time_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_ml_service.receiver.third_party_points._KNOWN", 20)  # a bound that one test can reach
    decoder = Decoder()
    for number in range(1, 40):
        body = message(number, "gauge")
        assert_same(decoder.protobuf("metrics", body), decoded_by_upb(body))
        reader = decoder._messages._reader
        assert reader is not None
        assert all(len(scope.numbers) <= 20 for scope in reader._scopes.values() if scope is not None)


def test_where_points_are_new_each_time_they_are_decoded_and_known_ones_are_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("otel_ml_service.receiver.third_party_points._CREDIT", 20)  # the same
    decoder = Decoder()
    for number in range(60):
        body = gauges([f"{number}/{index}" for index in range(4)])
        assert_same(decoder.protobuf("metrics", body), decoded_by_upb(body))
    reader = decoder._messages._reader
    assert reader is not None
    [scope] = reader._scopes.values()
    assert scope is not None
    assert 20 <= len(scope.numbers) <= 30

    monkeypatch.setattr(decoder, "_add", None)  # decodes
    decoder.protobuf("metrics", gauges(["0/0", "1/1"]))


def gauges(routes: list[str]) -> bytes:
    sent = [{"name": "load", "value": 1.0, "route": route} for route in routes]
    request: bytes = third_party_request(sent).SerializeToString()
    return request


def test_where_nothing_is_compiled_all_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_ml_service.receiver.third_party_points.native", None)
    decoder = Decoder()

    for kind in KINDS:
        assert_same(decoder.protobuf("metrics", message(2, kind)), decoded_by_upb(message(2, kind)))
