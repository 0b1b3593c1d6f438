"""Quantiles of histograms with explicit bounds are interpolated, as Prometheus does."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.quantiles import Part, difference, merged
from otel_ml_service.receiver.explicit_buckets import exponential

BOUNDS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


def quantile(bounds: tuple[float, ...], counts: tuple[int, ...], q: float) -> float:
    buckets = exponential(bounds, counts)
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


@given(st.lists(st.integers(0, 1000), min_size=7, max_size=7), st.lists(st.integers(0, 1000), min_size=7, max_size=7))
def test_the_difference_of_two_scrapes_is_what_came_between(before: list[int], more: list[int]) -> None:
    then, now = exponential(BOUNDS, before), exponential(BOUNDS, [a + b for a, b in zip(before, more, strict=True)])
    came = exponential(BOUNDS, more)
    assert then is not None
    assert now is not None
    assert came is not None

    fresh = difference(now, then)

    assert fresh.zero_count == pytest.approx(came.zero_count, abs=1e-6)
    assert sum(fresh.positive) == pytest.approx(sum(came.positive), abs=1e-6)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5, unique=True).map(sorted),
    st.lists(st.integers(0, 1000), min_size=6, max_size=6),
)
def test_any_bounds_keep_every_record(bounds: list[float], counts: list[int]) -> None:
    given_counts = counts[: len(bounds) + 1]

    buckets = exponential(bounds, given_counts)

    assert buckets is not None
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
    assert exponential(bounds, counts) is None
