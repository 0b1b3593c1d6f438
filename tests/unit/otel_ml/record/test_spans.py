from __future__ import annotations

import asyncio
import contextvars
import os
import random
import threading
import time

import pytest
from opentelemetry import trace
from opentelemetry.context.context import Context, _RuntimeContext
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log
from otel_ml._internal.series.buffer import stay_awake
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.manual_timer import timer
from otel_ml._internal.timers.step_span_processor import StepStampProcessor
from otel_ml._internal.timers.timing import timed
from tests.unit.otel_ml.record.decoded import plain, points, spans, sums


@pytest.fixture
def tracing(recorded):
    recorded.configure(otel_tracing=True)
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(StepStampProcessor())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("user"), exporter
    provider.shutdown()


def by_name(found):
    return {span.name: span for span in found}


@pytest.mark.parametrize("otel_tracing", [False, True])
def test_timers_nest(recorded, otel_tracing):
    recorded.configure(otel_tracing=otel_tracing)
    set_step(3)
    with timed("outer"):
        with timed("inner"):
            pass
        with timed("sibling"):
            pass
    with timed("next"):
        pass

    found = by_name(spans(recorded.collect()))
    outer = found["outer"]
    assert outer.parent_span_id == b""
    assert found["inner"].parent_span_id == found["sibling"].parent_span_id == outer.span_id
    assert found["inner"].trace_id == outer.trace_id
    assert found["next"].trace_id != outer.trace_id
    assert len({span.span_id for span in found.values()}) == 4
    assert plain(outer.attributes) == {"ml.timer.level": 1, "ml.step": 3, "ml.step.axis": "step"}
    assert outer.start_time_unix_nano <= found["inner"].start_time_unix_nano
    assert found["inner"].end_time_unix_nano <= outer.end_time_unix_nano


def test_timers_and_ordinary_spans_nest_both_ways(recorded, tracing):
    tracer, exporter = tracing
    set_step(1)
    with tracer.start_as_current_span("user outer"), timed("timer"), tracer.start_as_current_span("user inner"):
        pass

    users = by_name(exporter.get_finished_spans())
    (ours,) = spans(recorded.collect())
    outer, inner = users["user outer"], users["user inner"]
    assert int.from_bytes(ours.parent_span_id, "big") == outer.context.span_id
    assert int.from_bytes(ours.trace_id, "big") == outer.context.trace_id
    assert inner.parent.span_id == int.from_bytes(ours.span_id, "big")
    assert inner.context.trace_id == outer.context.trace_id
    assert trace.get_current_span() is trace.INVALID_SPAN


class ThreadsContext(_RuntimeContext):
    """A current context that is no `ContextVar`, as `OTEL_PYTHON_CONTEXT` may name one."""

    def __init__(self) -> None:
        self.local = threading.local()

    def attach(self, context):
        before = self.get_current()
        self.local.current = context
        return before

    def get_current(self):
        return getattr(self.local, "current", Context())

    def detach(self, token):
        self.local.current = token


def test_timers_and_ordinary_spans_nest_in_a_context_that_the_program_brought(recorded, tracing, monkeypatch):
    monkeypatch.setattr("opentelemetry.context._RUNTIME_CONTEXT", ThreadsContext())  # set once
    recorded.configure(otel_tracing=True)
    tracer, exporter = tracing
    with timed("outer"), tracer.start_as_current_span("user"), timed("inner"):
        pass

    (user,) = exporter.get_finished_spans()
    found = by_name(spans(recorded.collect()))
    assert user.parent.span_id == int.from_bytes(found["outer"].span_id, "big")
    assert int.from_bytes(found["inner"].parent_span_id, "big") == user.context.span_id
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_timer_of_a_generator_that_is_closed_elsewhere_says_nothing(recorded, tracing, caplog):
    def generate():
        with timed("t"):
            yield

    generator = contextvars.copy_context().run(lambda: (made := generate(), next(made))[0])
    generator.close()

    assert [span.name for span in spans(recorded.collect())] == ["t"]
    assert not caplog.records


@pytest.mark.parametrize("otel_tracing", [False, True])
def test_a_timer_in_which_the_program_begins_or_ends_tracing_leaves_no_current_span(recorded, otel_tracing):
    set_step(1)
    recorded.configure(otel_tracing=otel_tracing)
    with timed("around"):
        recorded.configure(otel_tracing=not otel_tracing)
    recorded.configure(otel_tracing=otel_tracing)
    with timed("after"):
        pass

    assert by_name(spans(recorded.collect()))["after"].parent_span_id == b""


def test_the_current_span_of_opentelemetry_is_the_timer(recorded, tracing):
    with timed("t"):
        current = trace.get_current_span()
        assert current.is_recording()
        current.set_attribute("note", "hello")
        current.set_attributes({"n": 3})
        current.add_event("halfway", {"done": 0.5})
        current.record_exception(ValueError("odd"))
        current.update_name("renamed")
        current.set_status(StatusCode.ERROR, "bad luck")

    (span,) = spans(recorded.collect())
    assert span.name == "renamed"
    assert plain(span.attributes) == {"ml.timer.level": 1, "note": "hello", "n": 3}
    assert [event.name for event in span.events] == ["halfway", "exception"]
    assert plain(span.events[1].attributes)["exception.message"] == "odd"
    assert (span.status.code, span.status.message) == (2, "bad luck")


def test_a_span_that_is_collected_after_what_is_inside_of_it_is_still_around_it(recorded, monkeypatch):
    wall = time.time_ns

    def interrupted():
        now_ns = wall()
        time.sleep(0.05)  # between the two clocks, as on a busy host
        return now_ns

    with timed("outer"):
        with timed("inner"):
            pass
        with monkeypatch.context() as patch:
            patch.setattr("time.time_ns", interrupted)
            (inner,) = spans(recorded.collect())
    (outer,) = spans(recorded.collect())

    assert outer.start_time_unix_nano <= inner.start_time_unix_nano
    assert inner.end_time_unix_nano <= outer.end_time_unix_nano


@pytest.mark.parametrize("by_s", [-3600, 3600])
def test_spans_follow_a_clock_that_is_set(recorded, monkeypatch, by_s):
    wall = time.time_ns
    monkeypatch.setattr("time.time_ns", lambda: wall() + by_s * 10**9)

    with timed("t"):
        pass
    (span,) = spans(recorded.collect())

    late_ns = wall() + by_s * 10**9 - span.end_time_unix_nano
    assert 0 < late_ns < 60e9


@pytest.mark.parametrize("otel_tracing", [False, True])
def test_tasks_keep_their_own_parents(recorded, otel_tracing):
    recorded.configure(otel_tracing=otel_tracing, spans_per_step=1000)

    @timed("child")
    async def child() -> None:
        await asyncio.sleep(0)

    async def parent(i: int) -> None:
        with timed(f"parent{i}"):
            for _ in range(3):
                await child()

    async def job() -> None:
        await asyncio.gather(*(parent(i) for i in range(10)))

    asyncio.run(job())
    found = spans(recorded.collect())
    parents = {span.span_id for span in found if span.name.startswith("parent")}
    children = [span.parent_span_id for span in found if span.name == "child"]
    assert len(parents) == 10
    assert sorted(children) == sorted(list(parents) * 3)


def test_what_runs_between_start_and_stop_is_not_nested(recorded, tracing):
    by_hand = timer("by hand")
    by_hand.start()
    with timed("block"):
        by_hand.stop()

    found = by_name(spans(recorded.collect()))
    assert found["block"].parent_span_id == b""
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_the_budget_keeps_the_first_spans_of_a_step_and_counts_the_rest(recorded):
    recorded.configure(spans_per_step=5)
    for i in range(2):
        set_step(i)
        for _ in range(8):
            with timed("t"):
                pass

    batch = recorded.collect()
    assert len(spans(batch)) == 10
    assert sums(batch)["otel_ml/spans_over_budget", 0] == 3.0
    assert {point.step: point.raw.count for point in points(batch, "time/t")} == {0: 8, 1: 8}
    assert batch.values == 16, "what otel_ml counts itself is not the user's"


def test_traces_off_keeps_metrics_only(recorded):
    recorded.configure(traces="off", otel_tracing=True)
    with timed("t"):
        assert trace.get_current_span() is trace.INVALID_SPAN

    batch = recorded.collect()
    assert spans(batch) == []
    assert len(points(batch)) == 1


def test_span_false_keeps_the_metric_only(recorded):
    with timed("t", span=False):
        pass

    batch = recorded.collect()
    assert (len(spans(batch)), len(points(batch))) == (0, 1)


@pytest.mark.feature("R22", "yes", "ids of runs, spans and processes")
def test_seeding_random_does_not_repeat_ids(recorded):
    ids = set()
    for _ in range(2):
        random.seed(0)
        recorder.forget()
        with timed("t"):
            pass
        ids.add(spans(recorded.collect())[0].span_id)

    assert len(ids) == 2


def test_a_forked_child_does_not_finish_its_parents_spans(recorded):
    read, write = os.pipe()
    set_step(1)
    with timed("parent"):
        pid = os.fork()
        if pid == 0:
            recorder.forget()
            stay_awake()  # no run begins here: its background thread would take what this test collects
            with timed("child"):
                pass
    if pid == 0:
        batch = recorded.collect(final=True)
        os.write(write, repr(([s.name for s in spans(batch)], [p.name for p in points(batch)])).encode())
        os._exit(0)
    os.waitpid(pid, 0)

    assert os.read(read, 1000).decode() == "(['child'], ['time/child'])"
    assert [span.name for span in spans(recorded.collect())] == ["parent"]


def test_users_spans_are_stamped_with_the_step(recorded, tracing):
    tracer, exporter = tracing
    tracer.start_span("no step").end()
    set_step(4)
    with step(2, axis="rollout"):
        tracer.start_span("in block").end()

    found = by_name(exporter.get_finished_spans())
    assert dict(found["no step"].attributes) == {}
    assert dict(found["in block"].attributes) == {"ml.step": 2, "ml.step.axis": "rollout"}


@pytest.mark.parametrize("budget", [0, 1])
def test_what_is_said_to_a_timer_without_a_span_is_lost_and_does_not_raise(recorded, budget):
    recorded.configure(spans_per_step=budget)
    set_step(1)
    with timed("kept"):
        pass
    with timed("over"), timed("without", span=False) as timing:
        timing.set_attribute("tokens", 3)
        timing.add_event("reached")
        assert not timing.is_recording()
        assert not timing.get_span_context().is_valid


def test_a_timer_is_linked_to_the_spans_that_led_to_it(recorded, tracing):
    tracer, _ = tracing
    cause = tracer.start_span("cause").get_span_context()
    with timed("a") as first:
        pass
    with timed("effect") as effect:
        effect.add_link(cause, {"samples": 3})
        trace.get_current_span().add_link(first.get_span_context())

    first_link, second_link = by_name(spans(recorded.collect()))["effect"].links
    assert int.from_bytes(first_link.trace_id, "big") == cause.trace_id
    assert int.from_bytes(first_link.span_id, "big") == cause.span_id
    assert plain(first_link.attributes) == {"samples": 3}
    assert int.from_bytes(second_link.span_id, "big") == first.span_id
    assert plain(second_link.attributes) == {}


@pytest.mark.parametrize(
    "odd", [None, "text", trace.INVALID_SPAN_CONTEXT, trace.SpanContext(2**128, 1, is_remote=True)]
)
def test_a_link_that_leads_nowhere_is_none_and_does_not_raise(recorded, odd):
    with timed("effect") as effect:
        effect.add_link(odd)

    assert list(spans(recorded.collect())[0].links) == []


def test_a_span_keeps_as_many_links_as_opentelemetry_does(recorded):
    with timed("effect") as effect:
        for number in range(1, 1000):
            effect.add_link(trace.SpanContext(1, number, is_remote=True))

    assert len(spans(recorded.collect())[0].links) == 128


def test_spans_that_cannot_be_encoded_are_counted_and_take_no_value_with_them(recorded, monkeypatch):
    set_step(3)
    log({"x": 1.0})
    with timed("a"), timed("b"):
        pass
    now_ns = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: -(10**18))  # a clock before 1970

    batch = recorder.collect(now_ns)

    assert {point.name for point in points(batch)} >= {"x"}
    assert spans(batch) == []
    assert recorder.dropped == {"spans_not_encoded": 2}


@pytest.mark.parametrize(("timestamp", "is_kept"), [(1, True), (2**63 - 1, True), (2**63, False), (0, False)])
def test_an_event_of_a_span_has_the_time_that_it_is_given_if_that_is_one(recorded, timestamp, is_kept):
    set_step(1)
    before = time.time_ns()
    with timed("t") as timing:
        timing.add_event("halfway", timestamp=timestamp)

    (event,) = spans(recorded.collect())[0].events
    assert (event.time_unix_nano == timestamp) is is_kept
    assert is_kept or before <= event.time_unix_nano <= time.time_ns()
