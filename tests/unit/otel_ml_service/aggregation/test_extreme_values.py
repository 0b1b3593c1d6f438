"""Values near the largest double, and quantiles of wide buckets of which the extremes are known."""

from __future__ import annotations

import math
import sys

import pytest
from opentelemetry.sdk.metrics import Histogram
from opentelemetry.sdk.metrics.view import Aggregation, ExplicitBucketHistogramAggregation

from otel_ml_exporters.records import HistogramValue
from tests.sdk import Sdk
from tests.strategies import Rank, Service

HUGE = 1.7e308
WIDE: dict[type, Aggregation] = {Histogram: ExplicitBucketHistogramAggregation([5.0, 100.0])}


def reduced(*values: float, reduce: str) -> float:
    """Return what a service makes of one value of each rank."""
    service, ranks = Service(), [Rank(number) for number in range(len(values))]
    for rank, value in zip(ranks, values, strict=True):
        service.take(rank.step(0, {"x": value}, reduce))
    service.take(*(rank.bye() for rank in ranks))
    return service.rows()[0]["x"]


@pytest.mark.parametrize("reduce", ["mean", "sum>mean", "mean>mean"])
@pytest.mark.parametrize(
    ("values", "mean"), [((HUGE, HUGE), HUGE), ((-HUGE,) * 3, -HUGE), ((HUGE, -HUGE), 0.0), ((HUGE, HUGE, 2.0), None)]
)
def test_the_mean_of_huge_values_is_finite(values: tuple[float, ...], mean: float | None, reduce: str) -> None:
    expected = HUGE / 3 * 2 if mean is None else mean

    assert reduced(*values, reduce=reduce) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(("values", "std"), [((HUGE, -HUGE), HUGE), ((HUGE, HUGE), 0.0), ((1e200, -1e200), 1e200)])
def test_the_deviation_of_huge_values_is_finite(values: tuple[float, ...], std: float) -> None:
    assert reduced(*values, reduce="std") == pytest.approx(std, rel=1e-15)


@pytest.mark.parametrize(
    ("records", "mean", "std"), [([HUGE, -HUGE], 0.0, HUGE), ([HUGE, HUGE], HUGE, 0.0), ([-HUGE, 0.0], -HUGE / 2, None)]
)
def test_two_huge_values_of_one_rank_have_a_mean_and_a_deviation(
    records: list[float], mean: float, std: float | None
) -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.record(0, {"x": records}, "mean,std"), rank.done(0), rank.bye())

    assert service.rows()[0] == pytest.approx({"x": mean, "x/std": HUGE / 2 if std is None else std}, rel=1e-15)


@pytest.mark.parametrize("reduce", ["mean", "std"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_still_shown(reduce: str, odd: float) -> None:
    found = reduced(HUGE, odd, HUGE, reduce=reduce)

    assert math.isnan(found) if reduce == "std" else found == odd or (math.isnan(found) and math.isnan(odd))


@pytest.mark.parametrize("reduce", ["histogram", "mean>histogram", "p50,histogram"])
def test_what_a_histogram_cannot_show_is_counted_in_its_step_and_said_once(reduce: str) -> None:
    service, ranks = Service(), [Rank(number) for number in range(4)]
    for step in range(2):
        values = (1.0, math.nan, math.inf, 2.0)
        service.take(*(rank.step(step, {"x": value}, reduce) for rank, value in zip(ranks, values, strict=True)))
    service.take(*(rank.step(2, {"x": 1.0}, reduce) for rank in ranks), *(rank.bye() for rank in ranks))

    counted = {
        step: value
        for step, row in service.rows(own=True).items()
        for name, value in row.items()
        if name.startswith("otel_ml/nonfinite/x")
    }
    assert counted == {0: 2.0, 1: 2.0}
    histograms = [sum(record.counts) for record in service.records if isinstance(record, HistogramValue)]
    assert histograms == [2.0, 2.0, 4.0]
    assert len([said for said in service.notices if "nonfinite" in said]) == 1


def test_a_histogram_without_a_finite_value_is_absent_and_counted() -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.record(0, {"x": [math.nan, -math.inf]}, "histogram"), rank.done(0), rank.bye())

    assert service.rows(own=True)[0]["otel_ml/nonfinite/x"] == 2.0
    assert not [record for record in service.records if isinstance(record, HistogramValue)]


@pytest.mark.parametrize("values", [(-math.inf, 0.3, 1.0), (1.0001, 2.0, math.inf), (-math.inf, -math.inf, 1.0)])
def test_the_finite_end_of_values_that_are_infinite_at_the_other_end_is_exact(values: tuple[float, ...]) -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.record(0, {"x": values}, "p0,p100"), rank.done(0), rank.bye())

    assert service.rows()[0] == {"x": min(values), "x/p100": max(values)}


def test_a_quantile_lies_between_the_extremes_of_each_rank() -> None:
    service, ranks = Service(), [Sdk(rank, aggregation=WIDE) for rank in range(2)]
    for rank, sdk in enumerate(ranks):
        latency = sdk.meter("a").create_histogram("latency")
        for _ in range(10):
            latency.record((0.06, 50.0)[rank], {"ml.step": 0, "ml.reduction": "p25,p50,p75,min,max"})
        sdk.export(service)
    service.wait(400)

    row = service.rows()[0]
    assert (row["latency/min"], row["latency/max"]) == (0.06, 50.0)
    assert (row["latency"], row["latency/p50"], row["latency/p75"]) == pytest.approx((0.06, 0.06, 50.0), rel=0.006)


def test_a_quantile_of_a_window_lies_between_the_extremes_of_the_streams_life() -> None:
    service, sdk = Service(), Sdk(aggregation=WIDE)
    latency = sdk.meter("a").create_histogram("latency")

    for _ in range(3):
        for value in (0.06, 0.07, 0.08):
            latency.record(value, {"ml.reduction": "p50,p99"})
        sdk.export(service)
        service.wait(9)
    service.wait(400)

    rows = list(service.rows(axis="time").values())
    assert len(rows) == 3
    assert [len(row) for row in rows] == [2, 2, 2]
    assert all(0.06 * 0.99 <= value <= 0.08 * 1.006 for row in rows for value in row.values())


def test_a_rank_that_does_not_know_its_least_value_still_knows_its_largest() -> None:
    service, sdk = Service(), Sdk(aggregation=WIDE)
    latency = sdk.meter("a").create_histogram("latency")

    for value in (0.5, 0.75):
        latency.record(value, {"ml.reduction": "max,p100"})
        latency.record(value, {"ml.reduction": "max,p100"})
        sdk.export(service)
        service.wait(9)
    service.wait(400)

    assert [row["latency/p100"] for row in service.rows(axis="time").values()] == [0.5, 0.75]


@pytest.mark.parametrize("reduce", ["p50", "p99", "histogram"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_double_has_a_bucket_as_every_other_value_has(reduce: str, sign: float) -> None:
    """Masks and bounds of losses are it."""
    largest = sign * sys.float_info.max

    service, ranks = Service(), [Rank(0), Rank(1)]
    service.take(*(rank.step(0, {"x": x}, reduce) for rank, x in zip(ranks, (largest, 1.0), strict=True)))
    service.take(*(rank.bye() for rank in ranks))

    if reduce == "histogram":
        [bins] = [record for record in service.records if isinstance(record, HistogramValue)]
        assert sum(bins.counts) == 2
    else:
        assert service.rows()[0]["x"] == sorted([largest, 1.0])[0 if reduce == "p50" else 1]


def test_sums_beyond_the_largest_double_make_no_finite_value_doubtful() -> None:
    largest = sys.float_info.max

    service, ranks = Service(), [Rank(0), Rank(1)]
    for rank, x in zip(ranks, (largest, -largest), strict=True):
        service.take(rank.record(0, {"x": [x, x]}, "p100"), rank.done(0))
    service.take(*(rank.bye() for rank in ranks))

    assert service.rows()[0]["x"] == largest


def test_a_quantile_near_the_largest_double_is_as_close_as_any_other() -> None:
    near = sys.float_info.max / 1.5

    service, ranks = Service(), [Rank(0), Rank(1)]
    for rank, values in zip(ranks, ([1.0, near, near * 1.4], [2.0]), strict=True):
        service.take(rank.record(0, {"x": values}, "p75"), rank.done(0))
    service.take(*(rank.bye() for rank in ranks))

    assert service.rows()[0]["x"] == pytest.approx(near, rel=0.006)
