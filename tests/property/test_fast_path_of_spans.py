"""What is taken of timers without decoding them is what decoding them gives: the fast path of spans against upb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml.wire.protobuf import field
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.receiver import span_fast_path
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.receiver.span_fast_path import SpanFastPath
from tests.otlp import FakeWriter, set_attributes
from tests.property.decoding import CHANGES, ENCODERS, NUMBERS, assert_same, assert_same_fate, changed, decoded_by_upb

LINKED = st.tuples(st.binary(min_size=16, max_size=16), st.sampled_from([b"", b"linked!!", b"too long!"]))
SPAN_IDS = st.binary(min_size=8, max_size=8)


BOTH = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "in Python"])


def decoder(*, compiled: bool) -> Decoder:
    """Return a decoder with the compiled part, or one that does without."""
    assert span_fast_path.native is not None, "the compiled part is missing: make setup"
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(span_fast_path, "native", None)
        return Decoder()


@st.composite
def span_requests(draw: st.DrawFn) -> Any:
    """Timers as a worker sends them, and spans of others, in one scope or in several."""
    writer = FakeWriter(rank=draw(st.integers(0, 2)), role=draw(st.sampled_from(["trainer", 'a"b', "größe"])))
    request = writer.span("", 0)
    [resource] = request.resource_spans
    del resource.scope_spans[0].spans[:]
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        resource.scope_spans.add().CopyFrom(resource.scope_spans[0])
    first = draw(st.sampled_from([0, 2**64 - 3]))
    for scope in resource.scope_spans:
        for _ in range(draw(st.integers(0, 4))):
            add_span(draw, scope.spans.add(), first)
            first = (first + 1) % 2**64
    return request


def add_span(draw: st.DrawFn, span: Any, number: int) -> None:
    span.name, span.kind = draw(st.text(max_size=140)), 1
    span.trace_id, span.span_id = draw(st.binary(min_size=16, max_size=16)), number.to_bytes(8, "big")
    span.parent_span_id = draw(st.sampled_from([b"", b"parent!!", b"parent!!", b"short"]))
    span.start_time_unix_nano, span.end_time_unix_nano = draw(NUMBERS), draw(NUMBERS)
    set_attributes(span.attributes, draw(st.sampled_from(SPAN_ATTRIBUTES)))
    if draw(st.booleans()):
        span.status.code = 2
    for ids in draw(st.lists(LINKED, max_size=3)):
        link = span.links.add(trace_id=ids[0], span_id=ids[1])
        set_attributes(link.attributes, draw(st.sampled_from([{}, {"ml.consumed": 3, "why": "größe"}])))


SPAN_ATTRIBUTES: Sequence[dict[str, Any]] = (
    {"ml.timer.level": 1, "ml.step": 7, "ml.step.axis": "step"},
    {"ml.timer.level": 2},
    {"ml.timer.level": 1, "ml.step": 3, "ml.step.axis": "step", "task": "math", "k": 1.5},
    {"ml.timer.level": 1, "ml.step": -3},
    {"http.method": "GET"},
)


@BOTH
@given(request=span_requests(), encoded=st.sampled_from(ENCODERS))
def test_any_spans_give_what_decoding_gives(request: Any, encoded: Callable[[Any], bytes], compiled: bool) -> None:
    body = encoded(request)
    assert_same(decoder(compiled=compiled).protobuf("traces", body), decoded_by_upb(body, "traces"))


@BOTH
@given(request=span_requests(), encoded=st.sampled_from(ENCODERS), changes=CHANGES)
def test_spans_that_were_changed_on_the_way_give_what_decoding_gives(
    request: Any, encoded: Callable[[Any], bytes], changes: Any, compiled: bool
) -> None:
    assert_same_fate(decoder(compiled=compiled), changed(encoded(request), changes), "traces")


@BOTH
@given(request=span_requests(), encoded=st.sampled_from(ENCODERS), kept=st.integers(0, 2**16))
def test_spans_of_a_request_that_was_cut_off_on_the_way_give_what_decoding_gives(
    request: Any, encoded: Callable[[Any], bytes], kept: int, compiled: bool
) -> None:
    scope = encoded(request.resource_spans[0].scope_spans[0])
    cut = scope[: kept % (len(scope) + 1)]  # inside of lengths that are right
    body = field(1, field(1, request.resource_spans[0].resource.SerializeToString()) + field(2, cut))

    assert_same_fate(decoder(compiled=compiled), body, "traces")


@BOTH
@given(request=span_requests(), encoded=st.sampled_from(ENCODERS), data=st.data())
def test_spans_of_a_form_that_is_known_give_what_decoding_gives(
    request: Any, encoded: Callable[[Any], bytes], data: st.DataObject, compiled: bool
) -> None:
    knowing = decoder(compiled=compiled)
    for _ in range(2):
        knowing.protobuf("traces", encoded(request))
    for span in (span for scope in request.resource_spans[0].scope_spans for span in scope.spans):
        span.trace_id, span.span_id = data.draw(st.binary(min_size=16, max_size=16)), data.draw(SPAN_IDS)
        span.parent_span_id = data.draw(SPAN_IDS) if span.parent_span_id else b""
        span.start_time_unix_nano, span.end_time_unix_nano = data.draw(NUMBERS), data.draw(NUMBERS)
        for attribute in span.attributes:
            if attribute.key == "ml.step":
                attribute.value.int_value = data.draw(st.integers(0, 2**20))

    body = encoded(request)

    assert_same(knowing.protobuf("traces", body), decoded_by_upb(body, "traces"))


@BOTH
@given(request=span_requests(), encoded=st.sampled_from(ENCODERS), changes=CHANGES)
def test_spans_of_a_form_that_is_known_and_were_changed_on_the_way_give_what_decoding_gives(
    request: Any, encoded: Callable[[Any], bytes], changes: Any, compiled: bool
) -> None:
    knowing = decoder(compiled=compiled)
    for _ in range(2):
        knowing.protobuf("traces", encoded(request))

    assert_same_fate(knowing, changed(encoded(request), changes), "traces")


def message(rank: int, step: int, *, names: Sequence[str] = ('100 % "forward"',), first: int = 1) -> tuple[Writer, Any]:
    """Return a rank and the ScopeSpans of its timers, whose ids count up from `first`."""
    request = FakeWriter(rank=rank).span("", step)
    [scope] = request.resource_spans[0].scope_spans
    del scope.spans[:]
    for number, name in enumerate(names, first):
        span = scope.spans.add(name=name, kind=1, trace_id=b"t" * 16, span_id=number.to_bytes(8, "big"))
        span.start_time_unix_nano = span.end_time_unix_nano = 1
        set_attributes(span.attributes, {"ml.timer.level": 1, "ml.step": step, "ml.step.axis": "step"})
    return Writer(experiment="run-1", role="trainer", instance=str(rank), rank=rank), scope


DIRECTLY_OR_NOT = pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])


@DIRECTLY_OR_NOT
def test_the_third_message_with_a_roles_timers_is_read_at_once_whichever_rank_sends_it(
    encoded: Callable[[Any], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(span_fast_path, "native", None)
    taking = SpanFastPath()
    for rank in (0, 1):
        writer, scope = message(rank, 7)
        assert taking.take(writer, [encoded(scope)])
    monkeypatch.setattr(span_fast_path, "fields_of", None)  # what takes a message apart, span by span

    writer, scope = message(2, 8)
    [found] = taking.take(writer, [encoded(scope)]) or ()

    assert [(span.name, span.rank, span.step) for span in found.spans] == [('100 % "forward"', 2, 8)]


@BOTH
@DIRECTLY_OR_NOT
def test_timers_of_several_scopes_are_taken_together_and_their_ids_in_a_row_are_a_range(
    encoded: Callable[[Any], bytes], compiled: bool
) -> None:
    taking = decoder(compiled=compiled)
    request = FakeWriter().span("", 7)
    [resource] = request.resource_spans
    del resource.scope_spans[:]
    for scope in (message(0, 7, names=["größe", "a"])[1], message(0, 8, names=["b"], first=3)[1]):
        resource.scope_spans.add().CopyFrom(scope)

    [found] = taking.protobuf("traces", encoded(request)).observations["run-1"]

    assert [(span.name, span.step) for span in found.spans] == [("größe", 7), ("a", 7), ("b", 8)]
    assert found.timers == range(1, 4)


@BOTH
@DIRECTLY_OR_NOT
def test_a_scope_of_others_beside_timers_is_decoded_and_the_timers_are_not(
    encoded: Callable[[Any], bytes], compiled: bool
) -> None:
    request = FakeWriter().span("of others", 7)
    request.resource_spans[0].scope_spans.add().CopyFrom(message(0, 7, names=["a"])[1])

    found = decoder(compiled=compiled).protobuf("traces", encoded(request)).observations["run-1"]

    assert [[span.name for span in one.spans] for one in found] == [["of others"], ["a"]]
    assert [type(one.spans) for one in found] == [tuple, SpanLines]


@DIRECTLY_OR_NOT
@given(names=st.lists(st.text(min_size=1, max_size=30) | st.text('a"\\\x00\x1f\x7f~ ', min_size=1), min_size=1))
def test_compiled_code_writes_the_lines_that_python_writes(
    encoded: Callable[[Any], bytes], names: Sequence[str]
) -> None:
    writer, scope = message(0, 7, names=names)
    body = encoded(scope)

    [compiled], [in_python] = (decoder(compiled=way)._timers.take(writer, [body]) or [None] for way in (True, False))

    assert (compiled and compiled.spans.written("{")) == (in_python and in_python.spans.written("{"))
    assert compiled or any(len(name.encode()) > 127 for name in names)
