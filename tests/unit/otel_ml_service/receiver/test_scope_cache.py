"""Scopes of messages are recognized by forms, of which as many are kept as there is room for, whoever sends what."""

from __future__ import annotations

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

from otel_ml.wire import attributes as wire
from otel_ml_service.receiver.scope_cache import ScopeCache, ScopeHead
from tests.otlp import set_attributes


def encoded(axis: str, step: int) -> bytes:
    scope = InstrumentationScope(name=wire.SCOPE)
    set_attributes(scope.attributes, {wire.AXIS: axis, wire.STEP: step, wire.SEQ: 1, wire.SEQ_POINTS: 2})
    return scope.SerializeToString()


def test_a_scope_of_a_known_form_is_read_and_no_other_form_is_kept_of_it() -> None:
    cache = ScopeCache()

    heads = [cache.of(encoded("rollout", step)) for step in (7, 8)]

    assert [head and (head.axis, head.step) for head in heads] == [("rollout", 7), ("rollout", 8)]
    assert isinstance(heads[0], ScopeHead)
    assert sum(map(len, cache.forms.values())) == 1


def test_of_ever_new_forms_a_thousand_are_kept() -> None:
    cache, most = ScopeCache(), 0

    for length in range(1, 150):
        for letter in "abcdefghijklmnop":
            head = cache.of(encoded(letter * length, 7))
            assert head is not None
            assert head.axis == letter * length
        most = max(most, sum(map(len, cache.forms.values())))

    assert 500 < most <= 1024
