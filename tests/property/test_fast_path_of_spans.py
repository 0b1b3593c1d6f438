"""What is taken of timers without decoding them is what decoding them gives: the fast path of spans against upb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.observation import Writer
from otel_ml_service.receiver import span_fast_path
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.receiver.span_fast_path import SpanFastPath
from tests.otlp import FakeWriter, set_attributes
from tests.property.decoding import CHANGES, ENCODERS, NUMBERS, assert_same, assert_same_fate, changed, decoded_by_upb

LINKED = st.tuples(st.binary(min_size=16, max_size=16), st.sampled_from([b"", b"linked!!", b"too long!"]))
SPAN_IDS = st.binary(min_size=8, max_size=8)


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
        for ids in draw(st.lists(LINKED, max_size=3)):
            link = span.links.add(trace_id=ids[0], span_id=ids[1])
            set_attributes(link.attributes, draw(st.sampled_from([{}, {"ml.consumed": 3, "why": "größe"}])))
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


@given(span_requests(), st.sampled_from(ENCODERS), st.data())
def test_spans_of_a_form_that_is_known_give_what_decoding_gives(
    request: Any, encoded: Callable[[Any], bytes], data: st.DataObject
) -> None:
    decoder = Decoder()
    for _ in range(2):
        decoder.protobuf("traces", encoded(request))
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.trace_id, span.span_id = data.draw(st.binary(min_size=16, max_size=16)), data.draw(SPAN_IDS)
        span.parent_span_id = data.draw(SPAN_IDS) if span.parent_span_id else b""
        span.start_time_unix_nano, span.end_time_unix_nano = data.draw(NUMBERS), data.draw(NUMBERS)
        for attribute in span.attributes:
            if attribute.key == "ml.step":
                attribute.value.int_value = data.draw(st.integers(0, 2**20))

    body = encoded(request)

    assert_same(decoder.protobuf("traces", body), decoded_by_upb(body, "traces"))


@given(span_requests(), st.sampled_from(ENCODERS), CHANGES)
def test_spans_of_a_form_that_is_known_and_were_changed_on_the_way_give_what_decoding_gives(
    request: Any, encoded: Callable[[Any], bytes], changes: Any
) -> None:
    decoder = Decoder()
    for _ in range(2):
        decoder.protobuf("traces", encoded(request))

    assert_same_fate(decoder, changed(encoded(request), changes), "traces")


@pytest.mark.parametrize("encoded", ENCODERS, ids=["directly", "through the Collector"])
def test_the_third_message_with_a_roles_timers_is_read_at_once_whichever_rank_sends_it(
    encoded: Callable[[Any], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(rank: int, step: int) -> tuple[Writer, bytes]:
        request = FakeWriter(rank=rank).span('100 % "forward"', step)
        [span] = request.resource_spans[0].scope_spans[0].spans
        span.kind = 1
        del span.attributes[:]
        set_attributes(span.attributes, {"ml.timer.level": 1, "ml.step": step, "ml.step.axis": "step"})
        own = Writer(experiment="run-1", role="trainer", instance=str(rank), rank=rank)
        return own, encoded(request.resource_spans[0].scope_spans[0])

    taking = SpanFastPath()
    for rank in (0, 1):
        assert taking.take(*message(rank, 7))
    monkeypatch.setattr(span_fast_path, "fields_of", None)  # what takes a message apart, span by span

    [found] = taking.take(*message(2, 8)) or ()

    assert [(span.name, span.rank, span.step) for span in found.spans] == [('100 % "forward"', 2, 8)]
