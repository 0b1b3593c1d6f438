"""`context()` names who made something, `consumed()` says what a step was made of."""

from __future__ import annotations

import json
import pickle
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

import otel_ml
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.timers import consumed
from otel_ml.testing import Capture, capture
from otel_ml.types import Context
from otel_ml.wire.trace_context import (
    MAX_RANK,
    MAX_VERSION,
    Producer,
    half_of_role,
    ids_of,
    key_of,
    producer_of,
    span_half,
    traceparent,
)
from tests.unit.otel_ml.record.decoded import plain

ROLES = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-.", max_size=10)


class Run:
    """A run in memory, and the requests of spans that it was sent."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self._bodies: list[bytes] = []
        transport: Any = capture._transport
        self._post = transport.post
        transport.post = self._listen

    def _listen(self, path: str, body: bytes, timeout: float) -> Any:
        if path == "/v1/traces":
            self._bodies.append(body)
        return self._post(path, body, timeout)

    @property
    def spans(self) -> Mapping[str, Sequence[Span]]:
        """All spans, by name."""
        by_name: dict[str, list[Span]] = {}
        assert self.capture.spans is not None  # it has been flushed
        for request in map(ExportTraceServiceRequest.FromString, self._bodies):
            for span in [one for part in request.resource_spans for scope in part.scope_spans for one in scope.spans]:
                by_name.setdefault(span.name, []).append(span)
        return by_name

    @property
    def notices(self) -> Sequence[str]:
        return self.capture.notices

    def totals(self, name: str, **attributes: str) -> Mapping[int | None, tuple[int, float, float, float]]:
        """Return count, sum, minimum and maximum of a metric at each step."""
        points = [point for point in self.capture.points if point.name == name and point.attributes == attributes]
        return {point.step: (point.count, point.value, point.min, point.max) for point in points}


@pytest.fixture
def run() -> Iterator[Run]:
    with capture() as found:
        yield Run(found)


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Yield what tells how many bytes are held that were not when this began."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield lambda: tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def made_by(role: str, rank: int | None, version: int | None, number: int = 1) -> str:
    half = half_of_role(role)
    return traceparent(half << 64 | number, span_half(half, rank, version, number))


@given(ROLES, st.none() | st.integers(0, MAX_RANK), st.none() | st.integers(0, MAX_VERSION), st.integers(1, 2**64 - 1))
@example("generator", MAX_RANK, MAX_VERSION, 1)
def test_a_traceparent_says_who_made_something(role: str, rank: int | None, version: int | None, number: int) -> None:
    text = made_by(role, rank, version, number)

    assert len(text) == 55
    assert producer_of(key_of(text)) == Producer(role.rstrip("\0"), rank, version)
    context = Context(text)
    assert (context.role, context.rank, context.version) == (role, rank, version)
    assert ids_of(text) == (context.trace_id, context.span_id)
    assert extract_ids(text) == (context.trace_id, context.span_id)


def test_a_context_of_which_a_bit_has_changed_names_nobody() -> None:
    key = key_of(made_by("generator", 3, 390))

    changed = [f"{int(key, 16) ^ 1 << bit:0{len(key)}x}" for bit in range(4 * len(key))]
    assert [producer_of(one) for one in changed] == [None] * len(changed)


@pytest.mark.parametrize(("rank", "version"), [(-1, -1), (MAX_RANK + 1, MAX_VERSION + 1), (2**40, 2**40)])
def test_what_does_not_fit_into_a_context_is_told_as_nothing(rank: int, version: int) -> None:
    assert producer_of(key_of(made_by("generator", rank, 390))) == Producer("generator", None, 390)
    assert producer_of(key_of(made_by("generator", 3, version))) == Producer("generator", 3, None)


def test_contexts_are_those_that_other_versions_make_and_differ_in_their_last_two_digits() -> None:
    """What they were made by travels between jobs that may have been upgraded one after the other."""
    made = [made_by("generator", 3, 390, number) for number in (1, 0x1FE, 0xFF)]

    assert [text[36:52] for text in made] == ["0003000186bd1401", "0003000186bd14fe", "0003000186bd14ff"]


def extract_ids(text: str) -> tuple[int, int]:
    ids = trace.get_current_span(extract({"traceparent": text})).get_span_context()
    return ids.trace_id, ids.span_id


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1))
def test_ids_of_another_tracer_name_nobody(trace_id: int, span_id: int) -> None:
    assert Context(traceparent(trace_id, span_id)).rank is None


@given(st.text(max_size=70) | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{2}(-.*)?"))
def test_any_text_names_what_opentelemetry_reads_of_it(text: str) -> None:
    assert (ids_of(text) or (0, 0)) == extract_ids(text)


def test_a_context_is_text_that_travels(run: Run) -> None:
    with otel_ml.timed("rollout"):
        made = otel_ml.context(version=390)

    for arrived in (
        pickle.loads(pickle.dumps(made)),
        Context(json.loads(json.dumps(made))),
        Context(bytes(made), "ascii"),
    ):
        assert arrived == made
        assert (arrived.role, arrived.rank, arrived.version) == ("trainer", 0, 390)
    assert len(bytes(made)) == len(made) <= 64


def test_a_context_names_a_moment_inside_of_the_current_span(run: Run) -> None:
    otel_ml.set_step(4)
    with otel_ml.timed("rollout") as rollout:
        first = otel_ml.context(version=7)
        assert otel_ml.context(version=7) is first
        assert otel_ml.context(version=8) != first

    [produced, _] = run.spans["produced"]
    assert int.from_bytes(produced.span_id, "big") == first.span_id
    assert int.from_bytes(produced.trace_id, "big") == first.trace_id == rollout.trace_id
    assert int.from_bytes(produced.parent_span_id, "big") == rollout.span_id
    assert plain(produced.attributes) == {"ml.version": 7, "ml.step": 4, "ml.step.axis": "step"}


def test_inside_a_trace_of_another_tracer_a_context_is_linked_to_its_span(run: Run) -> None:
    tracer = trace.get_tracer("server")
    with tracer.start_as_current_span("request") as request:
        made = otel_ml.context(version=7)

    assert (made.role, made.rank, made.version) == ("trainer", 0, 7)
    [produced] = run.spans["produced"]
    [link] = produced.links
    assert int.from_bytes(link.span_id, "big") == request.get_span_context().span_id


def test_a_step_says_of_what_it_was_made(run: Run) -> None:
    otel_ml.set_step(12)
    samples = [made_by("generator", 0, 11)] * 6 + [made_by("generator", 1, 8)] * 2

    otel_ml.consumed(samples, version=12)

    assert run.totals("consumed/samples") == {12: (2, 8.0, 2.0, 6.0)}
    assert run.totals("consumed/samples", generator="0")[12][1] == 6.0
    assert run.totals("consumed/version")[12][2:] == (8.0, 11.0)
    assert run.totals("consumed/staleness")[12][2:] == (1.0, 4.0)
    assert run.totals("consumed/staleness", generator="1")[12][2:] == (4.0, 4.0)


def test_staleness_counts_from_the_step_on_the_axis_of_versions(run: Run) -> None:
    otel_ml.set_step(0)
    otel_ml.consumed(made_by("generator", 0, 3))
    otel_ml.set_step(1)
    otel_ml.set_step(10, axis="policy_version")
    otel_ml.consumed(made_by("generator", 0, 3))

    assert run.totals("consumed/samples")[0][1] == 1.0
    staleness = run.totals("consumed/staleness")
    assert 0 not in staleness, "no version of the consumer: not known, which is not 0"
    assert staleness[1][2:] == (7.0, 7.0)


def test_what_is_consumed_in_parts_and_forms_is_one_count(run: Run) -> None:
    text = made_by("generator", 3, 5)
    ids = trace.SpanContext(Context(text).trace_id, Context(text).span_id, is_remote=True)
    otel_ml.set_step(1)
    otel_ml.consumed(text)
    otel_ml.consumed(text.encode())
    otel_ml.consumed({"traceparent": text, "accept": "*/*"})
    otel_ml.consumed(ids)
    otel_ml.consumed(sample for sample in [text, Context(text), text.encode(), {"traceparent": text}, ids])
    otel_ml.consumed([])

    assert run.totals("consumed/samples", generator="3")[1][1] == 9.0
    assert run.notices == []


def test_the_current_span_is_linked_to_what_was_consumed(run: Run) -> None:
    common, rare = made_by("generator", 0, 11), made_by("generator", 1, 8)
    foreign = traceparent(2**127 + 5, 77)
    otel_ml.set_step(12)
    with otel_ml.timed("train") as span:
        otel_ml.consumed([rare, *[common] * 3])
        otel_ml.consumed([common, foreign])

    found = run.spans
    [train] = found["train"]
    assert int.from_bytes(train.span_id, "big") == span.span_id
    assert plain(train.attributes)["ml.consumed"] == 6
    links = {int.from_bytes(link.span_id, "big"): plain(link.attributes) for link in train.links}
    producer = {"service.name": "generator", "ml.rank": 0, "ml.version": 11}
    assert links[Context(common).span_id] == {"ml.consumed": 4, **producer}
    assert links[Context(rare).span_id] == {"ml.consumed": 1, **producer, "ml.rank": 1, "ml.version": 8}
    assert links[77] == {"ml.consumed": 1}
    assert "consumed" not in found


def test_outside_of_spans_there_is_one_of_that_moment(run: Run) -> None:
    otel_ml.set_step(12)
    otel_ml.consumed(made_by("generator", 0, 11))

    [span] = run.spans["consumed"]
    assert plain(span.attributes) == {"ml.step": 12, "ml.step.axis": "step", "ml.consumed": 1}
    assert len(span.links) == 1


def test_many_samples_of_many_contexts_are_some_links_and_whole_counts(run: Run) -> None:
    otel_ml.set_step(1)
    with otel_ml.timed("train"):
        otel_ml.consumed([made_by("generator", number % 500, 3, number) for number in range(1, 20_001)])

    [train] = run.spans["train"]
    assert plain(train.attributes)["ml.consumed"] == 20_000
    assert len(train.links) == 128
    assert run.totals("consumed/samples")[1][1] == 20_000.0
    assert run.totals("consumed/samples", generator="7")[1][1] == 40.0


def test_samples_of_more_producers_than_are_told_apart_are_counted_all_the_same(run: Run) -> None:
    """As of 2,000 generators of which each has made several."""
    otel_ml.set_step(1)
    otel_ml.consumed([made_by("generator", rank, 3, number) for number in (1, 2, 3) for rank in range(2_000)])

    assert run.totals("consumed/samples")[1][1] == 6_000.0
    assert run.totals("consumed/samples", generator="7")[1][1] == 3.0


@pytest.mark.parametrize(
    "odd", ["nonsense", "", b"\xff", 5, None, object(), {}, {"a": 1}, {"traceparent": 3}, "ü" * 55]
)
def test_what_is_no_context_is_counted_and_said_once(run: Run, odd: Any) -> None:
    otel_ml.set_step(1)
    otel_ml.consumed([odd, made_by("generator", 0, 1), odd])
    otel_ml.consumed(odd)

    assert run.totals("consumed/samples")[1][1] == 1.0
    assert reporter.dropped["bad_context"] == 3
    [notice] = run.notices
    assert "expected what context() returns" in notice


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.array, torch.tensor])
def test_whatever_counts_is_a_version_as_it_is_a_step(run: Run, kind: Callable[[int], Any]) -> None:
    otel_ml.set_step(kind(9))
    made = otel_ml.context(version=kind(7))
    otel_ml.consumed(made, version=kind(12))

    assert made.version == 7
    assert run.totals("consumed/staleness", trainer="0")[9] == (1, 5.0, 5.0, 5.0)
    assert run.notices == []


@pytest.mark.parametrize(
    "odd", ["new", -1, 2**24, 1.5, [3], True, np.True_, torch.tensor(True), torch.tensor(3, device="meta")]
)
def test_a_version_that_is_none_is_said_and_the_context_is_one_all_the_same(run: Run, odd: Any) -> None:
    made = otel_ml.context(version=odd)

    assert (made.role, made.rank, made.version) == ("trainer", 0, None)
    otel_ml.flush()
    assert len(run.notices) == 1


def test_who_says_more_of_these_metrics_is_followed(run: Run) -> None:
    otel_ml.set_step(1)
    otel_ml.consumed(made_by("generator", 0, 1), version=3)
    otel_ml.flush()
    otel_ml.define_metric("consumed/staleness", unit="{update}")
    otel_ml.set_step(2)
    otel_ml.consumed(made_by("generator", 0, 1), version=3)

    assert {step: one[2] for step, one in run.totals("consumed/staleness").items()} == {1: 2.0, 2: 2.0}


def test_of_more_producers_than_a_person_reads_there_are_totals(run: Run) -> None:
    otel_ml.set_step(1)
    otel_ml.consumed([made_by("generator", rank, 1) for rank in range(400)])

    assert run.totals("consumed/samples")[1][1] == 400.0
    names = {tuple(one.attributes.items()) for one in run.capture.points if one.name == "consumed/samples"}
    assert len(names) == 1 + 256
    assert [notice for notice in run.notices if "more than 256 producers" in notice]


def test_threads_that_consume_at_once_lose_nothing(run: Run) -> None:
    sample = made_by("generator", 0, 1)
    otel_ml.set_step(1)

    def consume() -> None:
        for _ in range(20_000):
            otel_ml.consumed(sample)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert run.totals("consumed/samples")[1][1] == 80_000.0


def test_samples_that_wait_take_little_memory_each(run: Run) -> None:
    sample = made_by("generator", 0, 1)
    otel_ml.consumed(sample)
    with consumed._SETTLING.lock, traced_memory() as held:  # nobody counts meanwhile
        for _ in range(1_000):
            otel_ml.consumed(sample)
        waits = held()

    assert waits <= 64 * 1_000


def test_where_nothing_is_recorded_a_context_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    made = otel_ml.context(version=3)

    assert ids_of(made) == (0, 0)
    assert (made.role, made.rank, made.version) == (None, None, None)
    otel_ml.consumed([made])


def test_what_came_from_where_nothing_is_recorded_counts_as_of_nobody(run: Run) -> None:
    otel_ml.set_step(1)
    otel_ml.consumed([Context(traceparent(0, 0)), made_by("generator", 0, 1)])

    assert run.totals("consumed/samples")[1][1] == 2.0
    assert run.totals("consumed/samples", generator="0")[1][1] == 1.0
    assert run.notices == []
