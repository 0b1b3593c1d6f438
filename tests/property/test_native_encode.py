"""What is encoded in C is, byte for byte, what is encoded in Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans

from otel_ml._internal.messages import encode_metrics
from otel_ml._internal.native import native
from otel_ml._internal.series.buckets import ExponentialBuckets
from otel_ml._internal.series.definition import QUANTILE_COARSE, Attributes, Definition, Series
from otel_ml._internal.series.pending import Order, StepPartials
from otel_ml._internal.steps.axis import Axis, Step
from otel_ml._internal.timers import encode_spans, spans
from otel_ml._internal.timers.spans import Details, Recording
from otel_ml._internal.timers.timer_definitions import TimerDefinition
from otel_ml._internal.timers.timing import Timing
from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import ACROSS, WITHIN

assert native is not None, "the compiled part is missing: make setup"

EVERY_FLOAT = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324])
TIMES = st.integers(0, 2**63 - 1)
TEXTS = st.text(max_size=40) | st.sampled_from(["", "größe", "a" * 200, "\ud800"])  # the last is no UTF-8
NAMES = st.none() | TEXTS
# Of every length that a varint may have, and of more than 64 bits.
INTEGERS = st.integers(0, 70).flatmap(lambda bits: st.integers(-(2**bits), 2**bits))

REDUCTIONS = st.builds(
    Reduction,
    st.lists(st.sampled_from([*ACROSS, "p50", "p99"]), min_size=1, max_size=3, unique=True).map(tuple),
    st.none() | st.sampled_from(WITHIN),
    st.none() | st.just("dp"),
)
USUAL = st.sampled_from(
    [Reduction(), Reduction(("sum",)), Reduction(within="last"), Reduction(("first", "last")), Reduction(("std",))]
)
ATTRIBUTES: st.SearchStrategy[Attributes] = st.dictionaries(
    TEXTS, st.text(max_size=5) | st.booleans() | st.integers(-5, 300) | EVERY_FLOAT, max_size=2
).map(lambda pairs: tuple(sorted(pairs.items())))


class Metric(NamedTuple):
    """A series, and its records in each flush: values, weights and times."""

    name: str
    reduction: Reduction
    attributes: Attributes
    unit: str
    flushes: Sequence[Sequence[tuple[float, float | None, int]]]

    def series(self) -> Series:
        return Series(Definition(self.name, self.reduction, self.unit, self.unit), self.attributes)


RECORDS = st.lists(st.tuples(EVERY_FLOAT, st.none() | st.none() | EVERY_FLOAT, TIMES), max_size=4)
METRICS = st.lists(
    st.builds(
        Metric,
        TEXTS.filter(bool),
        USUAL | REDUCTIONS,
        st.just(()) | ATTRIBUTES,
        st.sampled_from(["", "s", "µs"]),
        st.tuples(RECORDS, RECORDS),
    ),
    max_size=8,
)


def pendings_of(metrics: Sequence[Metric], coarse: bool) -> list[StepPartials]:
    """Return what each flush has gathered, of series that were never encoded."""
    known = [(metric, metric.series()) for metric in metrics]
    flushes = []
    for flush in range(2):
        pending = StepPartials(min((time for one in metrics for _, _, time in one.flushes[flush]), default=0))
        for metric, series in known:
            for value, weight, time_ns in metric.flushes[flush]:
                pending.last_ns = max(pending.last_ns, time_ns)
                pending.add_special(series, value, weight, time_ns)
        pending.reduce()
        settle_nan(pending)
        if coarse:
            pending.moments[QUANTILE_COARSE] = (2, 2.0, 1.0, 1.0)
        flushes.append(pending)
    return flushes


def settle_nan(pending: StepPartials) -> None:
    """Let every NaN have the same bits: which of two a sum of both has is the processor's, and the interpreter's."""
    for gathered in (pending.moments, pending.weights):
        for series, numbers in gathered.items():
            gathered[series] = tuple(math.nan if math.isnan(number) else number for number in numbers)
    for series, m2 in pending.m2.items():
        pending.m2[series] = math.nan if math.isnan(m2) else m2


def scopes_of(encoded: Callable[..., Any], pending: StepPartials, step: Any = 7, axis: Any = "step") -> Any:
    QUANTILE_COARSE.ranged = False
    return list(encoded(pending, step, axis, itertools.count(127).__next__))


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or the type of what it raises."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever the one raises the other has to raise
        return type(error)


def count_points(metrics: bytes) -> int:
    found = 0
    for metric in ScopeMetrics.FromString(metrics).metrics:
        found += len(getattr(metric, metric.WhichOneof("data")).data_points)
    return found


@given(METRICS, st.booleans(), st.none() | INTEGERS, NAMES)
def test_what_steps_gathered(metrics, coarse, step, axis):
    for ours, pythons in zip(pendings_of(metrics, coarse), pendings_of(metrics, coarse), strict=True):
        scopes = scopes_of(encode_metrics.encoded_scopes, ours, step, axis)

        assert scopes == scopes_of(encode_metrics.scopes_in_python, pythons, step, axis)
        assert [series.ranged for series in ours.moments] == [series.ranged for series in pythons.moments]
        assert [points for points, _ in scopes] == [count_points(body) for _, body in scopes]


ODD = (
    st.sampled_from([0, -1, 2**64, 1.5, True, None, "x", np.float64(0.5), np.float32(0.5), np.int64(3)])
    | INTEGERS
    | EVERY_FLOAT
)
ODD_STATES = st.lists(ODD, min_size=3, max_size=5).map(tuple) | st.tuples(ODD, ODD, ODD, ODD)


@given(USUAL | REDUCTIONS, ATTRIBUTES, ODD_STATES, ODD_STATES, st.tuples(ODD, ODD), ODD, st.tuples(ODD, ODD))
def test_numbers_that_are_not_of_the_usual_types(reduction, attributes, state, order, weights, m2, times):
    def pending() -> StepPartials:
        odd = StepPartials(0)
        odd.first_ns, odd.last_ns = times
        usual = Series(Definition("loss", reduction, "", ""))
        series = Series(Definition("loss", reduction, "", ""), attributes)
        usual.settle()
        series.settle()
        odd.moments[usual] = (3, 1.5, 0.25, 1.0)
        odd.order[usual] = Order(1, 0.25, 2, 1.0)
        if series.moments:
            odd.moments[series] = state
        if series.ordered:
            odd.order[series] = Order(*order) if len(order) == 4 else order  # type: ignore[assignment]
        odd.m2 = {usual: 0.5, series: m2}
        if weights[0] is not None:
            odd.weights[series] = weights
        return odd

    def encoded(function: Callable[[StepPartials], Any]) -> Any:
        return outcome(scopes_of, function, pending())

    assert encoded(encode_metrics.encoded_scopes) == encoded(encode_metrics.scopes_in_python)


def around(base: int, counts: dict[int, int]) -> dict[Any, Any]:
    return {base + index: count for index, count in counts.items()}


COUNTS = st.builds(
    around,
    st.just(0) | INTEGERS,
    st.dictionaries(st.integers(-40, 40) | st.sampled_from([-2047, 2047, 3000]), INTEGERS, max_size=5),
)


@given(ATTRIBUTES, INTEGERS, INTEGERS, COUNTS, COUNTS | st.dictionaries(st.floats() | TEXTS, ODD, max_size=3))
def test_buckets_of_any_kind(attributes, scale, zeros, positive, negative):
    def pending() -> StepPartials:
        odd = StepPartials(0)
        series = Series(Definition("loss", Reduction(("p50",)), "s", "Loss."), attributes)
        series.settle()
        buckets = odd.buckets[series] = ExponentialBuckets()
        buckets.scale, buckets.zeros, buckets.positive, buckets.negative = scale, zeros, positive, negative
        odd.moments[series] = (2, 1.5, 0.25, 1.0)
        return odd

    def encoded(function: Callable[[StepPartials], Any]) -> Any:
        return outcome(scopes_of, function, pending())

    assert encoded(encode_metrics.encoded_scopes) == encoded(encode_metrics.scopes_in_python)


def test_more_reductions_than_are_remembered():
    reductions = [Reduction((f"p{i // 10}.{i % 10}", "max")) for i in range(600)]
    series = [Series(Definition(f"metric_{i}", one, "", "")) for i, one in enumerate(reductions)]
    for one in series:
        one.settle()
    for _ in range(2):
        pending = StepPartials(1)
        pending.moments = dict.fromkeys(reversed(series), (1, 0.5, 0.5, 0.5))

        assert scopes_of(encode_metrics.encoded_scopes, pending) == scopes_of(encode_metrics.scopes_in_python, pending)


@pytest.mark.parametrize("next_number", [None, lambda: None, lambda: 2**70, lambda: 1 / 0])
def test_numbers_that_are_none(next_number):
    pending = StepPartials(1)
    pending.order[QUANTILE_COARSE] = Order(1, 0.5, 1, 0.5)

    with pytest.raises((TypeError, OverflowError, ZeroDivisionError, KeyError)):
        encode_metrics.encoded_scopes(pending, 1, "step", next_number)


@pytest.mark.parametrize("what", [None, 3, "pending", Step(None, None, 0)])
def test_what_is_no_step(what):
    assert outcome(scopes_of, encode_metrics.encoded_scopes, what) is outcome(
        scopes_of, encode_metrics.scopes_in_python, what
    )


GAUGES = st.tuples(TEXTS, TEXTS, INTEGERS, INTEGERS, INTEGERS, INTEGERS)


@given(GAUGES, st.none() | st.dictionaries(TEXTS, EVERY_FLOAT, max_size=2))
def test_manifests_and_positions(gauge, attributes):
    assert outcome(encode_metrics.encoded_gauge, *gauge) == outcome(encode_metrics.gauge_in_python, *gauge)
    assert outcome(encode_metrics.encoded_gauge, *gauge, attributes) == outcome(
        encode_metrics.gauge_in_python, *gauge, attributes
    )


@pytest.mark.parametrize("function", [encode_metrics.encoded_scopes, encode_metrics.encoded_gauge, spans.encoded_spans])
def test_a_wrong_number_of_arguments(function):
    with pytest.raises(TypeError):
        function()


STEPS = st.builds(lambda axis, index: Step(None if axis is None else Axis(axis), index, 0), NAMES, st.none() | INTEGERS)
WATCHES = st.builds(
    lambda name, level: TimerDefinition(name, None, level, span=True, device=None),  # type: ignore[arg-type]
    TEXTS,
    INTEGERS | st.booleans() | st.just(1),
)
IDS = st.integers(1, 2**64 - 1)


@st.composite
def details(draw: st.DrawFn) -> Details:
    more = Details()
    more.name, more.error = draw(NAMES), draw(NAMES)
    more.attributes = draw(st.dictionaries(TEXTS, EVERY_FLOAT | st.none() | TEXTS, max_size=2))
    more.events = draw(st.lists(st.tuples(TIMES, TEXTS, st.just({"a": 1})), max_size=2))
    more.links = draw(st.lists(st.tuples(st.integers(1, 2**128 - 1), IDS, st.just({}) | st.just({"n": 3})), max_size=3))
    return more


@st.composite
def finished(draw: st.DrawFn) -> list[Recording]:
    steps = draw(st.lists(STEPS, min_size=1, max_size=3))
    timers = draw(st.lists(WATCHES, min_size=1, max_size=3))
    found = []
    for _ in range(draw(st.integers(0, 6))):
        span = draw(st.sampled_from([Recording, Timing]))()
        span.step, span.definition = draw(st.sampled_from(steps)), draw(st.sampled_from(timers))
        span.trace_id, span.span_id = draw(st.integers(0, 2**128 - 1)), draw(IDS)
        span.parent_id = draw(st.just(0) | IDS)
        span.begin_ns, span.end_ns = draw(TIMES), draw(TIMES)
        span.more = draw(st.none() | st.none() | details())
        found.append(span)
    return found


OFFSETS = st.integers(-(10**18), 2 * 10**18) | INTEGERS


@given(finished(), OFFSETS)
def test_spans(ended, offset_ns):
    body = outcome(spans.encoded_spans, ended, offset_ns)

    assert body == outcome(encode_spans.encoded_spans, ended, offset_ns)
    if isinstance(body, bytes):
        assert len(ScopeSpans.FromString(body).spans) == len(ended)


@given(
    finished(), st.sampled_from(["trace_id", "span_id", "parent_id", "begin_ns", "end_ns", "step", "definition"]), ODD
)
def test_spans_that_are_not_as_they_should_be(ended, what, odd):
    for span in ended[-1:]:
        setattr(span, what, odd)

    assert outcome(spans.encoded_spans, ended, 0) == outcome(encode_spans.encoded_spans, ended, 0)


def test_spans_that_are_none():
    unfinished = Timing()

    for ended in ([unfinished], [None], (), None):
        assert outcome(spans.encoded_spans, ended, 0) == outcome(encode_spans.encoded_spans, ended, 0)  # type: ignore[arg-type]


def test_many_series_and_spans():
    """More than are encoded in one go."""
    pending = StepPartials(1)
    for number in range(9_000):
        series = Series(Definition(f"metric_{number}", Reduction(), "", ""))
        series.settle()
        pending.moments[series] = (1, 0.5, 0.5, 0.5)
    ended = []
    for number in range(9_000):
        span = Timing()
        span.step, span.definition, span.more = (
            Step(None, None, 0),
            TimerDefinition("a", None, 1, span=True, device=None),
            None,
        )  # type: ignore[arg-type]
        span.trace_id = span.span_id = 1 + number
        span.parent_id, span.begin_ns, span.end_ns = 0, number, number
        ended.append(span)

    assert scopes_of(encode_metrics.encoded_scopes, pending) == scopes_of(encode_metrics.scopes_in_python, pending)
    assert spans.encoded_spans(ended, 5) == encode_spans.encoded_spans(ended, 5)
