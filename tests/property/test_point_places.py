"""Where the numbers of points of other SDKs lie in a message: what stands there is what protobuf reads."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml.wire.protobuf import field as encoded
from otel_ml.wire.reductions import STATISTICS
from otel_ml_service.aggregation.fold import COUNT, MAX, MIN, SUM
from otel_ml_service.receiver.point_positions import PointPositions, UnknownError, point_places
from tests.otlp import set_attributes, third_party_request
from tests.property.decoding import ENCODERS

NUMBERS = st.integers(1, 2**60)
FLOATS = st.floats(allow_nan=False, width=32).filter(bool)
VALUES = {statistic.key: column for column, statistic in enumerate(STATISTICS) if statistic.key}
KEYS = ["task", "layer", *VALUES]
VALUE = b"\x21" + struct.pack("<d", 1.5)
"""Field 4 of NumberDataPoint, as_double."""


@st.composite
def scopes(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    """Return a ScopeMetrics with all that point_places knows, and its points in the order of its metrics."""
    [scope] = third_party_request([]).resource_metrics[0].scope_metrics
    scope.schema_url = draw(st.sampled_from(["", "https://opentelemetry.io/schemas/1.30.0"]))
    points = []
    for number in range(draw(st.integers(1, 3))):
        metric = scope.metrics.add(name=f"m{number}", description=draw(st.sampled_from(["", "what"])), unit="s")
        kind = draw(st.sampled_from(["gauge", "sum", "histogram"]))
        data = getattr(metric, kind)
        if kind != "gauge":
            data.aggregation_temporality = draw(st.integers(1, 2))
        if kind == "sum":
            data.is_monotonic = draw(st.booleans())
        points += [_point(draw, data.data_points.add(), kind) for _ in range(draw(st.integers(1, 2)))]
    return scope, points


def _point(draw: st.DrawFn, point: Any, kind: str) -> Any:
    point.time_unix_nano, point.flags = draw(NUMBERS), draw(st.sampled_from([0, 300]))
    if draw(st.booleans()):
        point.start_time_unix_nano = draw(NUMBERS)
    if kind == "histogram":
        point.count, point.sum = draw(NUMBERS), draw(FLOATS)
        if draw(st.booleans()):
            point.min, point.max = draw(FLOATS), draw(FLOATS)
        if draw(st.booleans()):
            point.explicit_bounds.extend([1.0, 2.0])
            point.bucket_counts.extend([draw(NUMBERS), 1, 2])
    elif draw(st.booleans()):
        point.as_int = draw(st.integers(-(2**60), 2**60))
    else:
        point.as_double = draw(FLOATS)
    keys = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=3))
    set_attributes(point.attributes, {key: draw(FLOATS) if key in VALUES else "math" for key in keys})
    if draw(st.booleans()):
        set_attributes(point.attributes, {"ml.step": draw(st.integers(0, 2**40))})
    return point


def read(message: bytes, at: int | None, form: str) -> Any:
    return 0 if at is None else struct.unpack_from(form, message, at)[0]


def assert_there(message: bytes, found: PointPositions, point: Any) -> None:
    attributes = {pair.key: pair.value for pair in point.attributes}
    assert (read(message, found.time, "<Q"), read(message, found.start, "<Q")) == (
        point.time_unix_nano,
        point.start_time_unix_nano,
    )
    assert found.keys == {key.encode() for key in attributes}
    expected = {VALUES[key]: value.double_value for key, value in attributes.items() if key in VALUES}
    if "sum" in point.DESCRIPTOR.fields_by_name:
        expected |= {COUNT: point.count, SUM: point.sum}
        expected |= {MIN: point.min, MAX: point.max} if point.HasField("min") else {}
        assert (found.bounds is not None) == (found.counts is not None) == bool(point.explicit_bounds)
        for place, form, kept in (
            (found.bounds, "d", point.explicit_bounds),
            (found.counts, "Q", point.bucket_counts),
        ):
            if place is not None:
                assert struct.unpack_from(f"<{len(kept)}{form}", message, place.start) == tuple(kept)
                assert place.end - place.start == 8 * len(kept)
    else:
        expected[SUM] = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
    forms = {COUNT: "<Q", SUM: "<q" if found.is_integer else "<d"}
    assert {column: read(message, at, forms.get(column, "<d")) for column, at in found.stats.items()} == expected
    assert found.is_integer == (point.DESCRIPTOR.name == "NumberDataPoint" and point.WhichOneof("value") == "as_int")
    assert len(found.steps) == ("ml.step" in attributes)
    for place in found.steps:
        varint = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(message[place.start : place.end]))
        assert varint == attributes["ml.step"].int_value


@pytest.mark.parametrize("encoder", ENCODERS)
@given(scope=scopes())
def test_what_stands_at_each_place_is_what_was_sent(encoder: Any, scope: tuple[Any, list[Any]]) -> None:
    message, points = scope
    body = encoder(message)

    for found, point in zip(point_places(body), points, strict=True):
        assert_there(body, found, point)


MORE = {"an exponential histogram": 10, "a summary": 11, "a field of a later version": 12}


@pytest.mark.parametrize("what", [*MORE, "two kinds", "a value twice", "a field of the scope"])
def test_what_is_more_than_numbers_has_to_be_decoded(what: str) -> None:
    number = encoded(1, b"m") + encoded(5, encoded(1, VALUE))
    metric = {
        **{kind: encoded(1, b"m") + encoded(field, encoded(1, VALUE)) for kind, field in MORE.items()},
        "two kinds": number + encoded(7, encoded(1, VALUE)),
        "a value twice": encoded(1, b"m") + encoded(5, encoded(1, VALUE * 2)),
    }.get(what, number)
    assert len(point_places(encoded(2, number))) == 1

    with pytest.raises(UnknownError):
        point_places(encoded(2, metric) + (encoded(4, b"new") if what == "a field of the scope" else b""))


def test_a_metric_without_points_has_none() -> None:
    assert point_places(encoded(2, encoded(1, b"m"))) == []
