"""Whatever clocks say, nothing is drawn before its cause, and right clocks are left alone."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_exporters.records import Span, SpanLink
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.findings.causal_order import causal_shifts, in_causal_order
from otel_ml_service.perfetto.span_table import SpanTable

HOUR = 3600 * 10**9


def job(seed: int, generators: int, steps: int) -> list[Span]:
    """Return a job by one right clock: generators pull weights and make samples, a trainer consumes both ways."""
    rng, spans, now = random.Random(seed), list[Span](), 10 * HOUR
    for step in range(steps):
        now += rng.randint(1, 10**9)
        pushed = Span("0", f"w{step}", None, "produced", now, now, "trainer", 0, "step", step)
        spans.append(pushed)
        made = []
        for rank in range(generators):
            now += rng.randint(1, 10**8)
            pull = Span("0", f"p{step}.{rank}", None, "pull", now - 10, now, "generator", rank, "rollout", step)
            spans.append(replace(pull, links=(SpanLink("0", pushed.span_id),)))
            now += rng.randint(1, 10**8)
            made.append(Span("0", f"s{step}.{rank}", None, "produced", now, now, "generator", rank, "rollout", step))
        now += rng.randint(1, 10**8)
        links = tuple(SpanLink("0", one.span_id) for one in made)
        spans += [
            *made,
            Span("0", f"t{step}", None, "train", now - 10**8, now, "trainer", 0, "step", step, links=links),
        ]
    return spans


def are_ordered(spans: Sequence[Span]) -> bool:
    known = {span.span_id: span for span in spans}
    return all(known[link.span_id].start_ns <= span.end_ns for span in spans for link in span.links)


def by_clocks(spans: Sequence[Span], skews: Sequence[int], drifts: Sequence[float]) -> list[Span]:
    """Return spans as wrong clocks would have written them: the trainer's is the first."""

    def shown(span: Span) -> Span:
        clock = 0 if span.role == "trainer" else span.rank + 1
        start, end = (int(ns + skews[clock] + drifts[clock] * (ns - 10 * HOUR)) for ns in (span.start_ns, span.end_ns))
        return replace(span, start_ns=start, end_ns=end)

    return [shown(span) for span in spans]


SEEDS = st.integers(0, 2**32)
SKEWS = st.lists(st.integers(-HOUR, HOUR), min_size=5, max_size=5)


@given(SEEDS, SKEWS)
def test_clocks_that_are_an_hour_off_are_put_in_order(seed: int, skews: list[int]) -> None:
    spans = by_clocks(job(seed, 4, 6), skews, [0.0] * 5)

    ordered = in_causal_order(spans)

    assert are_ordered(ordered)
    assert [span.end_ns - span.start_ns for span in ordered] == [span.end_ns - span.start_ns for span in spans]


@given(SEEDS, SKEWS, st.lists(st.floats(-1e-4, 1e-4), min_size=5, max_size=5))
def test_clocks_that_drift_are_put_in_order(seed: int, skews: list[int], drifts: list[float]) -> None:
    spans = by_clocks(job(seed, 4, 6), skews, drifts)

    shifts = causal_shifts(spans)

    assert shifts is None or are_ordered(in_causal_order(spans))
    assert shifts is not None, "a ten-thousandth of these seconds is less than anything takes on its way"


@given(SEEDS, SKEWS, st.lists(st.floats(-1e-4, 1e-4), min_size=5, max_size=5))
def test_a_trace_has_nothing_before_its_cause_whatever_clocks_say(
    seed: int, skews: list[int], drifts: list[float]
) -> None:
    spans = by_clocks(job(seed, 4, 6), skews, drifts)
    with closing(SpanTable()) as table:
        for line in SpanLines.of(spans).lines:
            table.add(json.loads(line))

        clocks = table.align_clocks()

        drawn = [span for process in table.processes for span in table.of(process)]
        assert clocks.fit
        begins = {span["span_id"]: span["start_ns"] for span in drawn}
        ends = {span["span_id"]: span["end_ns"] for span in drawn}
        assert all(begins[link.span_id] <= ends[span.span_id] for span in spans for link in span.links)
        assert sum(one.is_forward for one in table.flows()) >= sum(
            begins[link.span_id] < begins[span.span_id] for span in spans for link in span.links
        )
        kept = {span.span_id: span.start_ns for span in spans if span.role == "trainer"}
        assert {name: begins[name] for name in kept} == kept, "metrics go by the trainer's clock"
        if not any(skews) and not any(drifts):
            assert clocks.moved == 0


@given(SEEDS)
def test_right_clocks_are_left_alone(seed: int) -> None:
    spans = job(seed, 4, 6)

    assert in_causal_order(spans) is spans


@given(SEEDS, SKEWS)
def test_both_ways_a_clock_is_known_to_less_than_a_round_takes(seed: int, skews: list[int]) -> None:
    spans = job(seed, 1, 30)

    moved = in_causal_order(by_clocks(spans, skews, [0.0] * 5))

    errors = {span.role: one.start_ns - span.start_ns for span, one in zip(spans, moved, strict=True)}
    assert abs(errors["trainer"] - errors["generator"]) <= 2 * 10**8


def test_a_clock_that_jumped_between_links_fits_no_shift_and_nothing_is_moved() -> None:
    early = Span("0", "w", None, "produced", 0, 0, "trainer", 0, "step", 0)
    pull = Span("0", "p", None, "pull", 5, 5, "generator", 0, "rollout", 0, links=(SpanLink("0", "w"),))
    made = Span("0", "s", None, "produced", 5 + HOUR, 5 + HOUR, "generator", 0, "rollout", 0)
    train = Span("0", "t", None, "train", 7, 7, "trainer", 0, "step", 0, links=(SpanLink("0", "s"),))
    spans = [early, pull, made, train]

    assert causal_shifts(spans) is None
    assert in_causal_order(spans) is spans


def test_a_link_to_a_span_that_never_came_moves_nothing() -> None:
    spans = [Span("0", "t", None, "train", 7, 7, "trainer", 0, "step", 0, links=(SpanLink("0", "gone"),))]

    assert in_causal_order(spans) is spans


def test_of_two_causes_with_one_span_id_each_link_finds_the_one_of_its_trace() -> None:
    """The span ids of what one producer makes with one version come again after 256."""
    first, again = (
        Span(trace, "b1", None, "produced", at, at, "generator", 0, "rollout", at)
        for trace, at in (("aa", 9), ("bb", 400))
    )
    used = Span("cc", "d1", None, "train", 0, 5, "trainer", 0, "step", 0, links=(SpanLink("aa", "b1"),))

    assert causal_shifts([first, again, used]) == {("generator", 0): -4, ("trainer", 0): 0}
