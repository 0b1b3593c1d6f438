from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_ml.wire.protobuf import any_value, key_value

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


def test_what_has_no_place_in_protobuf_becomes_text():
    assert back(AnyValue.FromString(any_value(2**80))) == str(2**80)
    assert back(AnyValue.FromString(any_value(object))) == str(object)
