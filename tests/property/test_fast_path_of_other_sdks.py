"""What other SDKs send is taken without decoding it, and gives what decoding it gives: the receiver against upb."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.observation import ThirdPartyPoints
from otel_ml_service.receiver.decode import Decoder
from tests.otlp import START, FakeWriter, set_attributes, third_party_request
from tests.property.decoding import CHANGES, ENCODERS, assert_same, assert_same_fate, changed, decoded_by_upb

EVERY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)

FORMS = (
    "gauge",
    "integer",
    "sum",
    "cumulative",
    "level",
    "histogram",
    "cumulative histogram",
    "buckets",
    "cumulative buckets",
    "histogram without extremes",
    "exponential",
    "cumulative exponential",
    "with an exemplar",
    "without a value",
)
OF_OTHERS: Sequence[dict[str, Any]] = (
    {},
    {"task": "math"},
    {"task": "math", "layer": 3, "frozen": True},
    {"ml.reduction": "max"},
    {"ml.step.axis": "eval"},
    {"ml.m2": 2.0},
)


@st.composite
def other_sdks(draw: st.DrawFn) -> Any:
    """Return a maker of messages of one form: the same points at another step and with other numbers."""
    metrics = draw(st.lists(st.tuples(st.sampled_from(FORMS), st.sampled_from("abc")), min_size=1, max_size=5))
    given = draw(st.lists(st.sampled_from(OF_OTHERS), min_size=1, max_size=3))
    steps = draw(st.sampled_from(["points", "points", "none", "scope", "some points", "scope and some points"]))
    most = draw(st.sampled_from([1, 2**40]))

    def message(step: int, numbers: st.DataObject) -> Any:
        request = third_party_request([])
        scope = request.resource_metrics[0].scope_metrics[0]
        if "scope" in steps:
            set_attributes(scope.scope.attributes, {"ml.step": 8})
        for number, ((form, name), attributes) in enumerate(itertools.product(metrics, given)):
            point = point_of(scope.metrics.add(name=name), form, numbers, most)
            point.start_time_unix_nano = numbers.draw(st.sampled_from([START, 2**64 - 1, START + 2**61, 0]))
            point.time_unix_nano = numbers.draw(st.sampled_from([START, START + 1, 2**63 - 1]))
            has_step = steps == "points" or ("some" in steps and number % 2)
            set_attributes(point.attributes, attributes | ({"ml.step": step} if has_step else {}))
        return request

    return message


def point_of(metric: Any, form: str, numbers: st.DataObject, most: int) -> Any:
    values = numbers.draw(st.tuples(EVERY_FLOAT, EVERY_FLOAT, EVERY_FLOAT))
    count = numbers.draw(st.sampled_from([1, 1, 0, 3, 2**64 - 1]))
    if form == "gauge":
        return metric.gauge.data_points.add(as_double=values[0])
    if form == "integer":
        return metric.gauge.data_points.add(as_int=numbers.draw(st.integers(-(2**63), 2**63 - 1)))
    if form in {"with an exemplar", "without a value"}:
        point = metric.gauge.data_points.add(as_double=values[0], flags=form == "without a value")
        if form == "with an exemplar":
            point.exemplars.add(as_double=values[1], time_unix_nano=START, span_id=b"s" * 8)
        return point
    temporality = 2 if "cumulative" in form or form == "level" else 1
    if form in {"sum", "cumulative", "level"}:
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = temporality, form != "level"
        return metric.sum.data_points.add(as_double=values[0])
    if "exponential" in form:
        return exponential_of(metric, temporality, count, values, numbers, most)
    metric.histogram.aggregation_temporality = temporality
    point = metric.histogram.data_points.add(count=count, sum=values[0])
    if form != "histogram without extremes":
        point.min, point.max = values[1:]
    if "buckets" in form:
        point.explicit_bounds.extend([0.0, 5.0])
        point.bucket_counts.extend(numbers.draw(st.tuples(*[st.sampled_from([0, 1, 2**40])] * 3)))
    return point


def exponential_of(
    metric: Any, temporality: int, count: int, values: Sequence[float], numbers: st.DataObject, most: int
) -> Any:
    """Add a point of which the width may depend on its numbers."""
    metric.exponential_histogram.aggregation_temporality = temporality
    scale, zero, offset = numbers.draw(st.tuples(st.sampled_from([2, 3, 20, 21]), *[st.integers(0, most)] * 2))
    point = metric.exponential_histogram.data_points.add(count=count, sum=values[0], scale=scale, zero_count=zero)
    point.min, point.max = values[1:]
    point.positive.offset = offset % 2**20
    point.positive.bucket_counts.extend(numbers.draw(st.lists(st.integers(0, most), max_size=3)))
    point.negative.bucket_counts.extend(numbers.draw(st.sampled_from([(), (1,), (2,)])))
    return point


@given(st.lists(other_sdks(), min_size=1, max_size=3), st.sampled_from(ENCODERS), st.data())
def test_any_requests_of_other_sdks_give_what_decoding_gives(
    makers: list[Any], encoded: Callable[[Any], bytes], data: st.DataObject
) -> None:
    decoder = Decoder()
    for step in (7, 8, 9, 127, 128, 70_000):
        for message in makers:
            body = encoded(message(step, data))
            assert_same(decoder.protobuf("metrics", body), decoded_by_upb(body))


@given(other_sdks(), st.sampled_from(ENCODERS), CHANGES, st.data())
def test_bytes_of_other_sdks_that_were_changed_on_the_way_give_what_decoding_gives(
    message: Any, encoded: Callable[[Any], bytes], changes: Any, data: st.DataObject
) -> None:
    decoder = Decoder()
    for step in (7, 8):
        decoder.protobuf("metrics", encoded(message(step, data)))

    assert_same_fate(decoder, changed(encoded(message(9, data)), changes), "metrics")


@pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])
def test_the_third_histogram_with_buckets_of_another_sdk_is_not_decoded_whatever_is_in_them(
    encoded: Callable[[Any], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Decoder()

    def body(step: int) -> bytes:
        request = third_party_request([])
        metric = request.resource_metrics[0].scope_metrics[0].metrics.add(name="latency")
        metric.histogram.aggregation_temporality = 1
        point = metric.histogram.data_points.add(count=3 * step, sum=4.0, min=0.5, max=9.0, time_unix_nano=START + step)
        point.explicit_bounds.extend([1.0, 5.0])
        point.bucket_counts.extend([step, step * 2**40, 7 * step])
        return encoded(request)

    for step in (1, 2):
        decoder.protobuf("metrics", body(step))
    with monkeypatch.context() as taken:
        taken.setattr(decoder, "_add", None)  # decodes
        third = decoder.protobuf("metrics", body(3))

    assert_same(third, decoded_by_upb(body(3)))


@pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])
@pytest.mark.parametrize("flags", [0, 1], ids=["with a value", "without"])
def test_a_byte_that_is_no_text_is_refused_wherever_it_is(encoded: Callable[[Any], bytes], flags: int) -> None:
    def body(step: int) -> bytes:
        given = {"task": "math", "layer": 3, "ml.step": step}
        request = third_party_request([{"name": name, "value": 0.5, **given} for name in ("loss", "norm")])
        request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].flags = flags
        return encoded(request)

    decoder = Decoder()
    for step in (7, 8):
        decoder.protobuf("metrics", body(step))
    for place in range(len(body(9))):
        assert_same_fate(decoder, changed(body(9), [(place, 0x80)]), "metrics")


def sums(step: int, rank: int, temporality: int, where: dict[str, Any], number: str = "as_double") -> Any:
    points = [{"name": name, "value": step, "layer": 2, **where} for name in ("loss", "norm", "lr", "tokens")]
    request = third_party_request(points, {"ml.experiment.id": "run-1", "ml.rank": rank}, kind="sum")
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        metric.sum.aggregation_temporality = temporality
        setattr(metric.sum.data_points[0], number, step)
        metric.sum.data_points[0].start_time_unix_nano = START + step if temporality == 2 else 0
    return request


READERS = pytest.mark.parametrize(
    "aliases",
    [{}, {"job": "ml.experiment.id"}],
    ids=["by the reader of columns", "by templates: it knows of no aliases"],
)


@pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])
@pytest.mark.parametrize("where", ["points", "scope", "nowhere"])
@pytest.mark.parametrize("temporality", [1, 2], ids=["delta", "cumulative"])
@pytest.mark.parametrize("number", ["as_double", "as_int"])
@READERS
def test_the_third_message_of_another_sdk_is_not_decoded_any_more(
    encoded: Callable[[Any], bytes],
    where: str,
    temporality: int,
    number: str,
    aliases: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = Decoder(aliases)

    def body(step: int, rank: int) -> bytes:
        request = sums(step, rank, temporality, {"ml.step": step} if where == "points" else {}, number)
        if where == "scope":
            set_attributes(request.resource_metrics[0].scope_metrics[0].scope.attributes, {"ml.step": 9})
        return encoded(request)

    for step in (7, 8):
        decoder.protobuf("metrics", body(step, 0))
    monkeypatch.setattr(decoder, "_add", None)  # decodes

    third = decoder.protobuf("metrics", body(9, 1))

    [points] = third.observations["run-1"]
    assert isinstance(points, ThirdPartyPoints)
    assert (points.writer.rank, points.step) == (1, None if where == "nowhere" else 9)
    assert points.partials.stats[:, 1].tolist() == [9.0] * 4
    assert points.starts == (START + 9 if temporality == 2 else 0,) * 4


@pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])
@READERS
def test_messages_with_a_point_that_has_no_value_give_what_decoding_gives(
    encoded: Callable[[Any], bytes], aliases: dict[str, str]
) -> None:
    def body(step: int) -> bytes:
        request = third_party_request([{"name": name, "value": 0.5, "ml.step": step} for name in ("loss", "norm")])
        point = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
        point.ClearField("as_double")
        point.flags = 1
        return encoded(request)

    decoder = Decoder(aliases)
    for step in (7, 8, 9):
        assert_same(decoder.protobuf("metrics", body(step)), decoded_by_upb(body(step)))


def test_no_template_is_made_of_a_message_of_another_sdk_that_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes more than decoding does, and several times the memory of its message."""
    decoder = Decoder({"job": "ml.experiment.id"})
    decoder.protobuf("metrics", sums(7, 0, 1, {"ml.step": 7}).SerializeToString())
    decoded: list[object] = []
    monkeypatch.setattr(decoder, "_add", lambda *given: decoded.append(given) or [])  # decodes

    decoder.protobuf("metrics", sums(8, 0, 1, {"ml.step": 8}).SerializeToString())

    assert len(decoded) == 1


@pytest.mark.parametrize("in_scope", [{}, {"ml.step": 8}], ids=["no step in the scope", "one that another point has"])
def test_points_without_a_step_beside_points_with_one_give_what_decoding_gives(in_scope: dict[str, Any]) -> None:
    decoder = Decoder()
    for step in (6, 7, 8, 8, 9, 9):
        request = third_party_request(
            [{"name": "loss", "value": 0.5, "ml.step": step}, {"name": "load", "value": 0.25}]
        )
        set_attributes(request.resource_metrics[0].scope_metrics[0].scope.attributes, in_scope)
        body = request.SerializeToString()
        assert_same(decoder.protobuf("metrics", body), decoded_by_upb(body))


def test_attributes_that_are_new_each_time_do_not_fill_the_memory() -> None:
    decoder = Decoder()
    forms = decoder._messages._third_party._forms
    forms._most_bytes = 10_000  # a bound that one test can reach
    for number in range(200):
        for _ in range(2):
            decoder.protobuf("metrics", sums(1, 0, 2, {"request": "x" * number}).SerializeToString())

    assert 0 < sum(map(len, forms.known.values())) < 40
    assert len(forms._seen) < 40


@pytest.mark.parametrize(
    "body", [third_party_request([{"name": "a", "value": 1.0, "ml.step": 3}]), FakeWriter().step(3, {"a": 1})]
)
def test_fields_that_nobody_writes_any_more_are_no_obstacle(body: Any) -> None:
    group = b"\x9b\x06\x9c\x06"  # begin and end of a group, number 99
    scope = body.resource_metrics[0].scope_metrics[0]
    scope.scope.MergeFromString(group)
    scope.metrics[0].MergeFromString(group)
    encoded, decoder = body.SerializeToString(), Decoder()
    assert group in encoded

    for _ in range(3):
        assert_same(decoder.protobuf("metrics", encoded), decoded_by_upb(encoded))
