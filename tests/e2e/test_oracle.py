"""The oracle itself, against values worked out by hand."""

from __future__ import annotations

import pytest

from tests.e2e.oracle import Recorded, counts_in_bins, expected, expected_histograms

HAND = [  # (rank, value, weight, time)
    (0, 1.0, 1.0, 10.0),
    (0, 3.0, 1.0, 11.0),
    (1, 8.0, 2.0, 12.0),
]


def records(reduction: str, *, weighted: bool = False) -> list[Recorded]:
    return [
        Recorded("trainer", rank, "step", 7, "x", value, reduction, order, weight=weight if weighted else None, time=at)
        for order, (rank, value, weight, at) in enumerate(HAND)
    ]


@pytest.mark.parametrize(
    ("reduction", "value"),
    [
        ("mean", 4.0), ("sum", 12.0), ("min", 1.0), ("max", 8.0), ("count", 3.0), ("last", 8.0), ("first", 1.0),
        ("std", 2.943920288775949), ("p50", 3.0), ("p99", 8.0), ("argmax", 1.0), ("argmin", 0.0),
        ("sum>max", 8.0), ("sum>min", 4.0), ("mean>mean", 5.0), ("count>sum", 3.0), ("last>mean", 5.5),
        ("sum>argmin", 0.0),
    ],
)  # fmt: skip
def test_a_reduction_is_what_arithmetic_by_hand_says(reduction: str, value: float) -> None:
    assert expected(records(reduction)) == {"x": {7: pytest.approx(value, rel=1e-15)}}


def test_weights_count_in_the_mean() -> None:
    assert expected(records("mean", weighted=True)) == {"x": {7: 5.0}}


@pytest.mark.feature("F11", "yes", 'one run for all; `reduce="rank"` draws each rank in it')
def test_further_reductions_and_ranks_have_names_of_their_own() -> None:
    assert expected(records("mean,max,rank")) == {
        "x": {7: 4.0}, "x/max": {7: 8.0}, "x/rank_0": {7: 2.0}, "x/rank_1": {7: 8.0},
    }  # fmt: skip


def test_of_equal_coordinates_only_the_lowest_rank_counts() -> None:
    copies = [
        Recorded("trainer", rank, "step", 0, "x", float(rank), "sum@dp", 0, topology={"dp": rank // 2})
        for rank in range(1, 6)
    ]

    assert expected(copies) == {"x": {0: 1.0 + 2.0 + 4.0}}


@pytest.mark.feature("F10", "yes", "role, axis and attributes are part of the name")
@pytest.mark.feature("R5", "yes", "`<role>/<axis>/<name>/<attribute>/<value>`")
def test_role_axis_and_attributes_are_in_the_name() -> None:
    one = Recorded("generator", 0, "rollout", 0, "reward@1", 1.0, "mean", 0, attributes={"task": "math"})

    [name] = expected([one])

    assert name == "generator/rollout/reward@1/task/math"


def test_a_histogram_holds_what_each_rank_recorded_or_what_that_came_to() -> None:
    assert expected_histograms(records("histogram")) == {"x": {7: [1.0, 3.0, 8.0]}}
    assert expected_histograms(records("sum>mean,histogram")) == {"x/histogram": {7: [4.0, 8.0]}}
    assert expected_histograms(records("mean")) == {}


def test_a_value_on_an_edge_may_be_counted_on_either_side() -> None:
    assert counts_in_bins([1.0, 3.0, 8.0], [0.5, 3.0, 9.0]) == [(1, 2), (1, 2)]
