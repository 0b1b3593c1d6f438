"""What was put into a request is what is read from it: spans, events, shutdown messages, statistics of a point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.records import SpanLink
from otel_ml_service.aggregation.observation import Event, Fragment, ShutdownMessage, Spans
from otel_ml_service.receiver.decode import Decoder, Signal
from tests.otlp import START, FakeWriter, set_attributes

TIMES = st.integers(1, 2**63 - 1)
COUNTS = st.integers(0, 2**40)
TOTALS = ("otel_ml.recorded", "otel_ml.points", "otel_ml.values", "otel_ml.events")
STEPS = st.none() | st.integers(0, 2**40)
AXES = st.sampled_from([None, "eval", "rollout"])
OTHERS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(["task", "k", "deep"]), st.sampled_from(["math", 3, 0.5, True, [1, "a"], {"in": {"side": 1}}])
)
VALUES = st.none() | st.floats(allow_nan=False)


def read(request: Any, signal: Signal) -> Any:
    """Return the first that is read from a request of which nothing is rejected."""
    decoded = Decoder().protobuf(signal, request.SerializeToString())
    assert not decoded.rejections.total, decoded.rejections.message
    return decoded.observations["run-1"][0]


def where(step: int | None, axis: str | None) -> dict[str, Any]:
    return {key: said for key, said in (("ml.step", step), ("ml.step.axis", axis)) if said is not None}


def axis_of(step: int | None, axis: str | None) -> str | None:
    return None if step is None else axis or "step"


@given(
    parent=st.sampled_from([b"", b"a parent"]),
    times=st.tuples(TIMES, TIMES),
    status=st.sampled_from([(0, "unset"), (1, "ok"), (2, "error")]),
    step=STEPS,
    axis=AXES,
    others=OTHERS,
    linked=st.lists(st.tuples(st.sampled_from([16, 15]), st.sampled_from([8, 9]), OTHERS), max_size=3),
    named_by=st.sampled_from(["the scope", "the span"]),
)
def test_a_span_is_what_was_sent(
    parent: bytes,
    times: tuple[int, int],
    status: tuple[int, str],
    step: int | None,
    axis: str | None,
    others: Mapping[str, Any],
    linked: list[tuple[int, int, dict[str, Any]]],
    named_by: str,
) -> None:
    request = FakeWriter(rank=3, role="learner").span("forward", 0)
    scope = request.resource_spans[0].scope_spans[0]
    [sent] = scope.spans
    del sent.attributes[:]
    set_attributes(sent.attributes, others)
    set_attributes((scope.scope if named_by == "the scope" else sent).attributes, where(step, axis))
    sent.parent_span_id, sent.status.code = parent, status[0]
    sent.start_time_unix_nano, sent.end_time_unix_nano = times
    for long, short, attributes in linked:
        set_attributes(sent.links.add(trace_id=b"t" * long, span_id=b"s" * short).attributes, attributes)

    found = read(request, "traces")

    assert isinstance(found, Spans)
    [span] = found.spans
    assert (span.trace_id, span.span_id, span.parent_id) == ((b"t" * 16).hex(), (b"s" * 8).hex(), parent.hex() or None)
    assert (span.name, span.role, span.rank, span.status) == ("forward", "learner", 3, status[1])
    assert (span.start_ns, span.end_ns) == times
    assert (span.axis, span.step, span.attributes) == (axis_of(step, axis), step, others)
    assert span.links == tuple(
        SpanLink((b"t" * 16).hex(), (b"s" * 8).hex(), attributes)
        for long, short, attributes in linked
        if (long, short) == (16, 8)  # other ids lead nowhere
    )


@pytest.mark.parametrize(("long", "short"), [(16, 7), (15, 8), (0, 8), (16, 0)])
def test_a_span_whose_ids_are_none_is_rejected_and_the_one_beside_it_is_taken(long: int, short: int) -> None:
    request = FakeWriter().span("forward", 1)
    request.resource_spans[0].scope_spans[0].spans.add(name="lost", trace_id=b"t" * long, span_id=b"s" * short)

    decoded = Decoder().protobuf("traces", request.SerializeToString())

    [found] = decoded.observations["run-1"]
    assert isinstance(found, Spans)
    assert [span.name for span in found.spans] == ["forward"]
    assert decoded.rejections.total == 1
    assert "'lost'" in decoded.rejections.message


@given(
    own=st.booleans(),
    is_named_by_attribute=st.booleans(),
    times=st.tuples(st.just(0) | TIMES, TIMES),
    step=STEPS,
    axis=AXES,
    others=OTHERS,
    body=st.sampled_from([None, "text", b"\x89PNG", 3, [1, 2.5], {"a": {"b": 1}}]),
)
def test_an_event_is_what_was_sent(
    own: bool,
    is_named_by_attribute: bool,
    times: tuple[int, int],
    step: int | None,
    axis: str | None,
    others: Mapping[str, Any],
    body: Any,
) -> None:
    request = FakeWriter(seq=6).event("my.event", body)
    scope = request.resource_logs[0].scope_logs[0]
    [sent] = scope.log_records
    sent.time_unix_nano, sent.observed_time_unix_nano = times
    set_attributes(sent.attributes, {**others, **where(step, axis)})
    if is_named_by_attribute:  # as SDKs before OTLP 1.5 do
        sent.event_name = ""
        set_attributes(sent.attributes, {"event.name": "my.event"})
    if not own:
        scope.scope.name = "my.library"

    found = read(request, "logs")

    assert isinstance(found, Event)
    assert (found.kind, found.seq) == ("my.event", 7 if own else None)
    assert found.time_ns == (times[0] or times[1])
    assert (found.axis, found.step) == (axis_of(step, axis), step)
    assert (found.attributes, found.body) == (others, body)


@pytest.mark.parametrize(
    ("kind", "name", "body", "is_taken"),
    [
        ("my.event", "loss", {"otel_ml/lost": 1}, True),
        ("my.event", "otel_ml/lost", None, False),
        ("ml.summary", "", {"loss": 1}, True),
        ("ml.summary", "", {"loss": 1, "otel_ml/lost": 1}, False),
        ("ml.artifact", "otel_ml/weights.pt", b"", True),  # a file may lie in any folder
    ],
)
def test_an_event_of_another_program_that_would_pass_for_otel_mls_own_account_is_rejected(
    kind: str, name: str, body: Any, is_taken: bool
) -> None:
    request = FakeWriter().event(kind, body, {"ml.name": name})
    request.resource_logs[0].scope_logs[0].scope.name = "my.library"

    decoded = Decoder().protobuf("logs", request.SerializeToString())

    assert bool(decoded.observations) == is_taken
    assert decoded.rejections.total == (not is_taken)
    assert is_taken or "'otel_ml/lost' is one of otel_ml's own account" in decoded.rejections.message


@given(
    status=st.sampled_from(["finished", "failed", "killed", "gone mad", None]),
    totals=st.fixed_dictionaries({}, optional=dict.fromkeys(TOTALS, COUNTS)),
    seconds=st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)),
    reasons=st.none() | st.dictionaries(st.sampled_from(["full", "too late"]), COUNTS),
)
def test_a_shutdown_message_is_what_was_sent(
    status: str | None, totals: Mapping[str, int], seconds: tuple[float, float], reasons: Mapping[str, int] | None
) -> None:
    request = FakeWriter(seq=6).event("ml.writer.end")
    [sent] = request.resource_logs[0].scope_logs[0].log_records
    taken, whole = seconds
    said: dict[str, Any] = {**totals, "otel_ml.overhead": taken, "otel_ml.duration": whole}
    said |= {} if status is None else {"ml.status": status}
    said |= {} if reasons is None else {"otel_ml.dropped": reasons, "otel_ml.given_up": reasons}
    set_attributes(sent.attributes, said)

    found = read(request, "logs")

    assert isinstance(found, ShutdownMessage)
    assert (found.seq, found.time_ns) == (7, sent.time_unix_nano)
    assert found.status == (status if status in {"finished", "failed", "killed"} else "finished")
    assert (found.recorded, found.points) == (totals.get("otel_ml.recorded", 0), totals.get("otel_ml.points", 0))
    assert (found.values, found.events) == (totals.get("otel_ml.values"), totals.get("otel_ml.events"))
    assert (found.overhead_s, found.duration_s) == seconds
    assert (found.dropped, found.given_up) == (reasons, reasons)


@given(count=st.integers(0, 3), total=VALUES, low=VALUES, high=VALUES, start=st.integers(0, 2 * START))
def test_of_a_point_that_leaves_something_out_only_what_follows_from_the_rest_is_known(
    count: int, total: float | None, low: float | None, high: float | None, start: int
) -> None:
    request = FakeWriter().step(1, {"loss": 1.0})
    [metric] = request.resource_metrics[0].scope_metrics[0].metrics
    [point] = metric.histogram.data_points
    point.Clear()
    point.count, point.start_time_unix_nano, point.time_unix_nano = count, start, START
    for name, value in (("sum", total), ("min", low), ("max", high)):
        if value is not None:
            setattr(point, name, value)

    found = read(request, "metrics")

    if count == 1 and total is not None:
        expected = (total, total, total)
    elif count == 0 and total is None:
        expected = (0.0, _or_unknown(low), _or_unknown(high))
    else:
        expected = (_or_unknown(total), _or_unknown(low), _or_unknown(high))
    assert isinstance(found, Fragment)
    assert found.partials.stats[0, :4].tolist() == pytest.approx([count, *expected], rel=0, abs=0, nan_ok=True)
    assert found.partials.times.tolist() == [[start if 0 < start <= START else START, START]]


def _or_unknown(value: float | None) -> float:
    return math.nan if value is None else value
