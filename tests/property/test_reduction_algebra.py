"""Every reduction against an independent reference over the multiset of values (docs/protocol.md §2.8)."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_service.aggregation.piece import Piece, Shape, Source, fold_order
from otel_ml_service.aggregation.reduce import reduce_windows
from tests.strategies import Rank, anything, finite, integers

Records = list[list[float]]
"""Each rank's records of one metric."""

ranks_of = st.lists(st.lists(integers, min_size=1, max_size=6), min_size=1, max_size=6)
QUICK = settings(max_examples=60, deadline=None)


def pieces_of(records: Records, reduce: str, *, fragments: int = 1, weights: Records | None = None) -> list[Piece]:
    """Return the pieces of ranks that sent their records in so many fragments."""
    pieces = []
    for number, values in enumerate(records):
        rank = Rank(number, topology=(("dp", number // 2, 4), ("tp", number % 2, 2)))
        source = Source(
            number, number, rank.writer.instance, rank.writer.instance, {"dp": number // 2, "tp": number % 2}
        )
        size = max(1, math.ceil(len(values) / fragments))
        for start in range(0, len(values), size):
            rank.clock += 1
            weight = None if weights is None else weights[number][start : start + size]
            (sent,) = rank.record(0, {"m": values[start : start + size]}, reduce, weights=weight)
            shape, newest_ns = Shape(0, sent.partials.series), sent.partials.newest_ns
            pieces.append(Piece(source, sent.seq, sent.reduction, shape, sent.partials, newest_ns))
    return sorted(pieces, key=fold_order)


def reduced(pieces: list[Piece]) -> dict[tuple[int, int | None], float]:
    """Return (place, rank) → value."""
    (result,) = reduce_windows(pieces[0].reduction, [pieces])
    return {(value.place, value.rank): value.value for value in result.values}


def one(records: Records, reduce: str, **how: object) -> float | None:
    return reduced(pieces_of(records, reduce, **how)).get((0, None))  # type: ignore[arg-type]


def everything(records: Records) -> list[float]:
    return [value for values in records for value in values]


EXACT = {
    "mean": lambda values: float(Fraction(sum(map(Fraction, values)), len(values))),
    "sum": lambda values: float(sum(map(Fraction, values))),
    "min": min,
    "max": max,
    "count": lambda values: float(len(values)),
}


@pytest.mark.parametrize("reduce", EXACT)
@given(records=ranks_of, fragments=st.integers(1, 3))
@QUICK
def test_the_result_equals_the_reference_over_all_records(reduce: str, records: Records, fragments: int) -> None:
    assert one(records, reduce, fragments=fragments) == EXACT[reduce](everything(records))


@given(records=st.lists(st.lists(finite, min_size=1, max_size=6), min_size=1, max_size=6))
@QUICK
def test_std_is_that_of_the_population_and_does_not_cancel(records: Records) -> None:
    shifted = [[value + 1e9 for value in values] for values in records]

    result = one(shifted, "std")

    reference = statistics.pstdev(map(Fraction, everything(shifted)))
    assert result == pytest.approx(float(reference), rel=1e-6, abs=1e-6)


@given(records=st.lists(st.lists(finite, min_size=1, max_size=20), min_size=1, max_size=6))
@QUICK
def test_std_of_parts_that_weigh_what_they_hold_is_that_of_the_whole(records: Records) -> None:
    spreads = [(statistics.fmean(values), statistics.pstdev(values)) for values in records]
    told = [[mean + deviation, mean - deviation] for mean, deviation in spreads]
    weights = [[len(values) / 2] * 2 for values in records]

    result = one(told, "std", weights=weights)

    assert result == pytest.approx(statistics.pstdev(everything(records)), rel=1e-6, abs=1e-6)


@given(records=ranks_of, data=st.data())
@QUICK
def test_std_beside_a_mean_is_that_of_all_records(records: Records, data: st.DataObject) -> None:
    weights = [[float(data.draw(st.integers(1, 9))) for _ in values] for values in records]

    result = reduced(pieces_of(records, "mean,std", weights=weights))

    assert result[1, None] == pytest.approx(statistics.pstdev(everything(records)), abs=1e-9)


@given(records=st.lists(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=4), min_size=1, max_size=8))
@QUICK
def test_sums_are_sequential_in_rank_order(records: Records) -> None:
    lone = [values[:1] for values in records]
    total = lone[0][0]
    for value in everything(lone[1:]):
        total += value

    result = one(lone, "sum")

    assert result == total or (result is not None and math.isnan(result) and math.isnan(total))


@given(records=ranks_of, data=st.data())
@QUICK
def test_weights_pool_and_no_weight_at_all_is_absent(records: Records, data: st.DataObject) -> None:
    weights = [[float(data.draw(st.integers(0, 9))) for _ in values] for values in records]
    total = sum(map(sum, weights))
    products = sum(Fraction(x) * Fraction(w) for x, w in zip(everything(records), everything(weights), strict=True))

    result = one(records, "mean", weights=weights)

    assert result == (None if total == 0 else float(products / Fraction(total)))


@given(records=ranks_of, across=st.sampled_from(["mean", "max", "min", "sum", "count"]))
@QUICK
def test_within_combines_one_writers_records_first(records: Records, across: str) -> None:
    totals = [sum(values) for values in records]

    assert one(records, f"sum>{across}", fragments=2) == EXACT[across](totals)


@pytest.mark.parametrize("within", ["mean", "min", "max", "count", "first", "last"])
@given(records=st.lists(st.lists(integers, min_size=1, max_size=1), min_size=1, max_size=5))
@QUICK
def test_within_of_a_single_record_is_that_record(within: str, records: Records) -> None:
    values = [1.0] * len(records) if within == "count" else everything(records)

    assert one(records, f"{within}>mean") == EXACT["mean"](values)


@given(records=ranks_of)
@QUICK
@pytest.mark.feature("M6", "yes", '`reduce=("min", "argmin", "max", "argmax")`')
def test_rank_gives_each_ranks_mean_and_arg_the_lowest_rank_that_holds_the_extreme(records: Records) -> None:
    result = reduced(pieces_of(records, "rank,argmax,argmin", fragments=2))

    means = [EXACT["mean"](values) for values in records]
    assert [result[0, rank] for rank in range(len(records))] == means
    assert result[1, None] == min(range(len(records)), key=lambda rank: (-max(records[rank]), rank))
    assert result[2, None] == min(range(len(records)), key=lambda rank: (min(records[rank]), rank))


@given(
    records=st.lists(st.lists(finite, min_size=1, max_size=20), min_size=1, max_size=5), quantile=st.integers(0, 100)
)
@QUICK
def test_quantiles_are_within_0_6_percent_of_the_nearest_rank(records: Records, quantile: int) -> None:
    values = sorted(everything(records))
    exact = values[max(1, math.ceil(Fraction(quantile, 100) * len(values))) - 1]

    result = one(records, f"p{quantile}")

    assert result == pytest.approx(exact, rel=0.006, abs=1e-300)


@given(
    records=st.lists(st.lists(finite | st.just(math.inf), min_size=1, max_size=20), min_size=1, max_size=5),
    sign=st.sampled_from([1.0, -1.0]),
    quantile=st.integers(0, 100),
)
@QUICK
def test_infinite_values_are_on_their_side_of_a_quantile(records: Records, sign: float, quantile: int) -> None:
    mirrored = [[sign * value for value in values] for values in records]
    values = sorted(everything(mirrored))
    exact = values[max(1, math.ceil(Fraction(quantile, 100) * len(values))) - 1]

    assert one(mirrored, f"p{quantile}") == pytest.approx(exact, rel=0.006, abs=1e-300)


@given(value=finite, ranks=st.integers(1, 5), quantile=st.integers(0, 100))
@QUICK
def test_quantiles_of_equal_values_are_exact(value: float, ranks: int, quantile: int) -> None:
    assert one([[value, value]] * ranks, f"p{quantile}") == value


@given(records=ranks_of)
@QUICK
def test_a_histogram_holds_every_record_between_ascending_finite_edges(records: Records) -> None:
    pieces = pieces_of(records, "histogram")
    (result,) = reduce_windows(pieces[0].reduction, [pieces])
    (bins,) = result.histograms

    assert sum(bins.counts) == len(everything(records))
    assert list(bins.edges) == sorted(set(bins.edges))
    assert len(bins.edges) == len(bins.counts) + 1 <= 513


@given(records=st.lists(st.lists(finite | st.floats(), min_size=1, max_size=20), min_size=1, max_size=4))
@QUICK
def test_a_bin_of_a_histogram_holds_the_values_between_its_edges(records: Records) -> None:
    values = [value for value in everything(records) if math.isfinite(value)]
    pieces = pieces_of(records, "histogram")
    (result,) = reduce_windows(pieces[0].reduction, [pieces])

    for bins in result.histograms:
        for (low, high), count in zip(pairwise(bins.edges), bins.counts, strict=True):
            margin_low, margin_high = abs(low) * 1e-9, abs(high) * 1e-9
            surely = sum(low + margin_low < value < high - margin_high for value in values)
            perhaps = sum(low - margin_low <= value <= high + margin_high for value in values)
            assert surely <= count <= perhaps
    assert [bins for bins in result.histograms if bins.counts] or not values


@given(records=ranks_of)
@QUICK
def test_last_is_by_time_across_writers_and_by_order_within(records: Records) -> None:
    longest = max(range(len(records)), key=lambda rank: (len(records[rank]), -rank))

    assert one(records, "last", fragments=6) == records[longest][-1]
    assert one([values[:1] for values in records], "first") == records[0][0]


@given(records=ranks_of)
@QUICK
def test_over_counts_the_lowest_rank_of_each_coordinate(records: Records) -> None:
    assert one(records, "sum@dp") == sum(map(sum, records[::2]))
    assert one(records, "sum@tp") == sum(map(sum, records[:2]))


@pytest.mark.parametrize("reduce", ["mean", "sum", "min", "max", "std", "argmax", "sum>max", "p50", "last"])
@given(records=st.lists(st.lists(anything, min_size=1, max_size=1), min_size=1, max_size=5))
@QUICK
def test_nan_propagates_and_infinity_does_as_ieee_says(reduce: str, records: Records) -> None:
    values = everything(records)
    result = one(records, reduce)

    assert result is not None
    if any(map(math.isnan, values)) and reduce != "last":
        assert math.isnan(result)
    elif reduce in {"min", "max"}:
        assert result == EXACT[reduce](values)
    elif any(map(math.isinf, values)) and reduce in {"sum", "mean", "sum>max"}:
        infinite = max(values) if reduce == "sum>max" else sum(filter(math.isinf, values))
        assert result == infinite or (math.isnan(result) and math.isnan(infinite))


@given(records=ranks_of)
@QUICK
def test_a_metric_that_only_some_ranks_recorded_is_reduced_over_those(records: Records) -> None:
    pieces = pieces_of(records, "mean")
    other = pieces_of([[1.0]], "mean")[0]
    renamed = other.partials.series[0]._replace(name="other")
    other = other._replace(shape=Shape(1, (renamed,)), partials=other.partials._replace(series=(renamed,)))

    (result,) = reduce_windows(other.reduction, [sorted([*pieces, other], key=fold_order)])

    assert {v.name: v.value for v in result.values} == {"m": EXACT["mean"](everything(records)), "other": 1.0}
