from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics

from otel_ml._internal.messages.encode_metrics import encoded_gauge, scope_bytes
from otel_ml.wire.protobuf import any_value, key_value, text

scalars = (
    st.none()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.binary()
)
texts = st.text(st.characters(exclude_categories=["Cs"]))
nested = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


def back(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [back(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: back(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, kind)


@given(nested)
def test_any_value_is_read_back_by_protobuf(value):
    decoded = AnyValue.FromString(any_value(value))
    assert back(decoded) == value
    assert decoded.SerializeToString() == any_value(value)


@given(texts, scalars)
def test_key_value_is_read_back_by_protobuf(key, value):
    pair = KeyValue.FromString(key_value(key, value))
    assert (pair.key, back(pair.value)) == (key, value)


@pytest.mark.parametrize("border", [0, 127, 2**7, 2**14, 2**21, 2**63, -(2**63), 2**64, -(2**64)])
@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_a_whole_number_is_read_back_or_becomes_text(border: int, beside: int) -> None:
    number = border + beside

    found = back(AnyValue.FromString(any_value(number)))

    assert found == (number if number.bit_length() <= 63 or number == -(2**63) else str(number))


def test_what_has_no_place_in_protobuf_becomes_text():
    assert back(AnyValue.FromString(any_value(2**80))) == str(2**80)
    assert back(AnyValue.FromString(any_value(object))) == str(object)


# Of every length that a varint may have.
numbers = st.integers(0, 63).flatmap(lambda bits: st.integers(0, 2**bits - 1 if bits else 0))


@given(st.none() | numbers, st.none() | texts, st.none() | texts, numbers, numbers)
def test_a_scope_is_read_back_by_protobuf(step, axis, reduction, seq, points):
    scope = ScopeMetrics.FromString(scope_bytes(step, axis, reduction, seq, points)).scope

    given = {"ml.step": step, "ml.step.axis": axis, "ml.reduction": reduction, "ml.seq": seq, "ml.seq.points": points}
    assert scope.name == "otel_ml"
    found = {pair.key: back(pair.value) for pair in scope.attributes}
    assert found == {key: value for key, value in given.items() if value is not None}


@given(numbers, numbers, numbers, numbers, st.dictionaries(texts, texts, max_size=2))
def test_a_gauge_of_the_protocol_is_read_back_by_protobuf(step, value, time_ns, seq, attributes):
    scope = ScopeMetrics.FromString(encoded_gauge("otel_ml.step.points", "step", step, value, time_ns, seq, attributes))

    (metric,) = scope.metrics
    (point,) = metric.gauge.data_points
    assert (metric.name, point.as_int, point.time_unix_nano) == ("otel_ml.step.points", value, time_ns)
    assert {pair.key: back(pair.value) for pair in point.attributes} == attributes


def test_halves_of_surrogate_pairs_are_escaped_so_that_two_names_stay_two() -> None:
    names = [os.fsdecode(f"caf{letter}".encode("latin-1")) for letter in "éè"]

    assert [text(1, name)[2:] for name in names] == [rb"caf\udce9", rb"caf\udce8"]
    assert [any_value(name)[2:] for name in names] == [rb"caf\udce9", rb"caf\udce8"]
