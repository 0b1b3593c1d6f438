"""Quantiles of histograms with explicit bounds are interpolated, as Prometheus does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.explicit_buckets import as_sent, increase, spread_of
from otel_ml_service.aggregation.points import Buckets, ExplicitBuckets
from otel_ml_service.aggregation.quantiles import Distribution, Part, came_since, difference, merged, narrowed

BOUNDS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


def exponential(bounds: tuple[float, ...], counts: tuple[int, ...]) -> Buckets:
    buckets = as_sent(bounds, counts)
    assert buckets is not None
    return spread_of(bounds).dense(spread_of(bounds).counts(buckets))


def quantile(bounds: tuple[float, ...], counts: tuple[int, ...], q: float) -> float:
    buckets = as_sent(bounds, counts)
    assert buckets is not None
    return merged([Part(buckets, sum(counts), 1.0, math.nan, math.nan)]).quantile(q)


@pytest.mark.parametrize(
    ("bounds", "counts", "q", "value"),
    [
        ((1.0, 2.0), (0, 100, 0), 0.5, 1.5),
        ((1.0, 2.0), (0, 100, 0), 0.99, 1.99),
        ((1.0, 2.0, 3.0), (0, 50, 50, 0), 0.75, 2.5),
        ((10.0,), (100, 0), 0.5, 5.0),
        ((1.0, 2.0), (0, 0, 7), 0.5, 2.0),
        ((-2.0, -1.0, 1.0), (0, 100, 0, 0), 0.25, -1.75),
        ((-1.0, 1.0), (0, 100, 0), 0.9, 0.8),
        ((0.0, 1.0), (10, 0, 0), 0.5, 0.0),
    ],
)
def test_a_quantile_is_interpolated_within_its_bucket(
    bounds: tuple[float, ...], counts: tuple[int, ...], q: float, value: float
) -> None:
    assert quantile(bounds, counts, q) == pytest.approx(value, rel=0.02, abs=1e-9)


COUNTS = st.lists(st.integers(0, 1000), min_size=7, max_size=7).map(tuple)


@given(COUNTS, COUNTS)
def test_the_difference_of_two_scrapes_is_what_came_between(before: tuple[int, ...], more: tuple[int, ...]) -> None:
    now = tuple(a + b for a, b in zip(before, more, strict=True))

    assert increase(ExplicitBuckets(BOUNDS, now), ExplicitBuckets(BOUNDS, before)) == ExplicitBuckets(BOUNDS, more)


@given(COUNTS, COUNTS)
def test_a_stream_that_was_kept_as_exponential_buckets_or_has_other_bounds_now_goes_on(
    before: tuple[int, ...], more: tuple[int, ...]
) -> None:
    now = tuple(a + b for a, b in zip(before, more, strict=True))
    exact = merged([Part(ExplicitBuckets(BOUNDS, more), sum(more), 1.0, math.nan, math.nan)])

    fresh = came_since(ExplicitBuckets(BOUNDS, now), exponential(BOUNDS, before), math.nan, math.nan)

    assert isinstance(fresh, Buckets)
    assert fresh.zero_count == pytest.approx(exact.zero, abs=1e-6)
    assert sum(fresh.positive) == pytest.approx(sum(exact.positive.values()), abs=1e-6)
    wider = came_since(ExplicitBuckets((*BOUNDS, 1e3), (*now, 5)), ExplicitBuckets(BOUNDS, before), math.nan, math.nan)
    assert isinstance(wider, Buckets)
    assert wider.zero_count + sum(wider.positive) >= 4.99


LIMIT = st.one_of(st.just(math.nan), st.floats(-200, 200), st.sampled_from([0.0, 1.0, 10.0, 1e305]))
EXTREMES = st.tuples(LIMIT, LIMIT).filter(lambda pair: not pair[0] > pair[1])
ANY_BOUNDS = st.lists(
    st.one_of(st.floats(-200, 200), st.sampled_from([0.0, 1.0, 5.0, 1e-305, 1e305, -1e305])), min_size=1, max_size=6
).map(lambda found: tuple(sorted(set(found))))


@st.composite
def points(draw: st.DrawFn) -> list[tuple[ExplicitBuckets, tuple[float, float]]]:
    """Points of one metric, of which some know the extremes of their stream, and their own."""
    found = []
    for _ in range(draw(st.integers(1, 4))):
        bounds = draw(st.sampled_from([BOUNDS, draw(ANY_BOUNDS)]))
        counts = tuple(draw(st.lists(st.integers(0, 9), min_size=len(bounds) + 1, max_size=len(bounds) + 1)))
        low, high = (None if math.isnan(limit) else limit for limit in draw(EXTREMES))
        found.append((ExplicitBuckets(bounds, counts, low, high), draw(EXTREMES)))
    return found


@given(points())
def test_points_spread_together_give_what_each_gives_as_exponential_buckets(
    sent: list[tuple[ExplicitBuckets, tuple[float, float]]],
) -> None:
    one_by_one = []
    for buckets, extremes in sent:
        of_stream = [math.nan if limit is None else limit for limit in (buckets.low, buckets.high)]
        plain = narrowed(exponential(buckets.bounds, buckets.counts), *of_stream)
        one_by_one.append(Part(plain, sum(buckets.counts), 1.0, *extremes))
    together = [Part(buckets, sum(buckets.counts), 1.0, *extremes) for buckets, extremes in sent]

    assert told(merged(together)) == told(merged(one_by_one))


def told(found: Distribution) -> object:
    sides = [
        {index: pytest.approx(count) for index, count in side.items() if count > 1e-12}
        for side in (found.positive, found.negative)
    ]
    return found.scale, pytest.approx(found.zero, abs=1e-12), *sides


def test_beside_coarser_buckets_explicit_ones_become_as_coarse() -> None:
    coarse = Part(Buckets(0, 0, 0, (4,), 0, ()), 4, 1.0, math.nan, math.nan)
    fine = Part(ExplicitBuckets((1.0, 2.0), (0, 8, 0)), 8, 1.0, math.nan, math.nan)

    found = merged([coarse, fine])

    assert found.scale == 0
    assert found.positive == {0: pytest.approx(12.0)}


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5, unique=True).map(
        lambda found: tuple(sorted(found))
    ),
    st.lists(st.integers(0, 1000), min_size=6, max_size=6).map(tuple),
)
def test_any_bounds_keep_every_record(bounds: tuple[float, ...], counts: tuple[int, ...]) -> None:
    given_counts = counts[: len(bounds) + 1]

    buckets = exponential(bounds, given_counts)

    kept = math.fsum((buckets.zero_count, *buckets.positive, *buckets.negative))
    assert kept == pytest.approx(sum(given_counts))


@given(st.integers(1, 10_000))
def test_the_last_record_of_a_bucket_lies_in_it_however_its_shares_are_rounded(count: int) -> None:
    assert quantile((1.0, 2.0, 500.0, 1000.0), (0, count, 0, count, 0), 0.5) <= 2.02


@pytest.mark.parametrize(
    ("bounds", "counts"),
    [
        ((), (3,)),
        ((1.0, 2.0), (1, 2)),
        ((1.0, 2.0), (1, 2, 3, 4)),
        ((1.0, 2.0), ()),
        ((1.0, math.inf), (1, 2, 3)),
        ((math.nan, 1.0), (1, 2, 3)),
        ((-math.inf, 1.0), (1, 2, 3)),
    ],
)
def test_a_point_whose_bounds_are_no_numbers_or_do_not_fit_its_counts_has_no_buckets(
    bounds: tuple[float, ...], counts: tuple[int, ...]
) -> None:
    assert as_sent(bounds, counts) is None


def test_what_came_since_begins_and_ends_with_buckets_that_something_is_in() -> None:
    before, now = Buckets(3, 0, 10, (5, 1, 0, 2), -4, (3,)), Buckets(3, 2, 10, (5, 3, 0, 2), -4, (3,))

    assert difference(now, before) == Buckets(3, 2, 11, (2,), 0, ())
