"""Change points: found where there are some, and nowhere else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_service.findings.change_points import LEAST, RECENT, _bend, _is_beyond, _may_be_off, change_points
from tests.quality.changes import NOISE, told_of_change, told_of_none

SEEDS = range(20)
"""20,000 steps of each kind; the table in the documentation is of ten times as many."""

BENDS = "steeply falling loss"


@pytest.mark.parametrize("kind", sorted(NOISE.keys() - {BENDS}))
def test_noise_tails_and_trends_are_no_changes(kind: str) -> None:
    assert told_of_none(kind, SEEDS).changes <= 2  # 1 in 10,000 steps


def test_a_curve_that_bends_sharply_in_the_beginning_is_told_wrongly_now_and_then_and_only_there() -> None:
    assert told_of_none(BENDS, SEEDS).changes <= 12


@pytest.mark.parametrize("kind", ["normal", "trend, 2 σ a step", "log-normal", "Student t, 3 degrees"])
def test_three_deviations_are_found_where_they_begin_before_they_are_old(kind: str) -> None:
    told = told_of_change(kind, 3.0, range(100, 150))

    assert told.found >= 45
    assert told.near >= 0.9 * told.found
    assert told.latest <= RECENT + 2


def test_of_a_random_walk_it_is_said_that_nothing_can_be_told() -> None:
    assert told_of_none("random walk", SEEDS).untold == len(SEEDS)
    assert told_of_none("normal", SEEDS).untold == 0


@pytest.mark.parametrize("kept", [35, 40, 60])
def test_a_level_that_was_reached_by_and_by_and_is_lost_is_found(kept: int) -> None:
    """As a reward that is learned, and falls: what is compared with the newest steps has the rise in it, too."""
    learned = [*[0.6] * 10, *np.linspace(0.6, 3.0, 15), *[3.0] * kept]
    found = 0
    for seed in range(50):
        values = np.array([*learned, *[1.5] * 30]) + np.random.default_rng(seed).normal(size=len(learned) + 30) * 0.3
        changes = change_points(range(len(values)), values.tolist()).changes
        found += any(abs(change.step - len(learned)) <= 2 for change in changes)

    assert found >= 45


def test_a_level_that_comes_back_is_two_changes() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=240) * 0.001 + 0.005
    values[80:150] += 0.015

    found = change_points(range(240), values.tolist())

    assert [change.step for change in found.changes] == [80, 150]
    assert [round(change.by, 3) for change in found.changes] == [0.015, -0.015]


def test_a_schedule_without_noise_changes_where_it_says() -> None:
    found = change_points(range(100), [1e-3] * 60 + [1e-4] * 40)

    assert [(change.step, change.before, change.after) for change in found.changes] == [(60, 1e-3, 1e-4)]


def test_some_outliers_are_no_change() -> None:
    values = np.random.default_rng(2).normal(size=300)
    values[100:105] += 1000

    assert change_points(range(300), values.tolist()).changes == ()


@pytest.mark.parametrize("count", [0, 1, LEAST - 1])
def test_too_few_steps_tell_nothing(count: int) -> None:
    found = change_points(range(count), [float(step > 2) for step in range(count)])

    assert not found.is_told


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=LEAST, max_size=150),
    scale=st.sampled_from([2.0**-20, 1.0, 2.0**20]),
    gaps=st.sets(st.integers(0, 149), max_size=10),
)
@settings(max_examples=60, deadline=None)
def test_units_directions_and_gaps_change_nothing(values: list[float], scale: float, gaps: set[int]) -> None:
    """Powers of two are exact, so what is found is the same to the bit."""
    steps = range(0, 7 * len(values), 7)
    found = change_points(steps, values)

    mirrored = change_points(steps, [-scale * value for value in values])
    assert [change.step for change in mirrored.changes] == [change.step for change in found.changes]

    filled, at = [], []
    for index, value in enumerate(values):
        if index in gaps:
            filled, at = [*filled, math.nan, math.inf], [*at, 7 * index - 2, 7 * index - 1]
        filled, at = [*filled, value], [*at, 7 * index]
    assert change_points(at, filled) == found


def test_the_largest_and_the_smallest_doubles_have_levels_too() -> None:
    wobble = np.random.default_rng(3).normal(size=120)
    for scale in (1e305, 1e-305):
        values = (wobble + np.where(np.arange(120) >= 70, 20.0, 0.0)) * scale

        found = change_points(range(120), values.tolist())

        assert [change.step for change in found.changes] == [70]


def test_a_level_far_beyond_all_before_it_is_told_where_these_had_a_hump() -> None:
    rng = np.random.default_rng(1)
    values = 24 + 0.2 * rng.normal(size=100)
    values[40:46] += 4  # for a moment another program took a part of the machine
    values[50:] += 20

    assert [change.step for change in change_points(range(100), values).changes] == [50]


@pytest.mark.parametrize("seed", range(40))
def test_a_walk_of_no_known_steps_has_no_change_of_level(seed: int) -> None:
    rng = np.random.default_rng(seed)

    for steps in (rng.normal(size=400), rng.standard_t(3, size=400)):
        assert change_points(range(400), np.cumsum(steps)).changes == ()


@pytest.mark.parametrize("since", [20, 30])
def test_a_level_far_beyond_all_before_it_is_told_of_a_short_series(since: int) -> None:
    values = 50 + 0.5 * np.random.default_rng(2).normal(size=60)
    values[since:] -= 30

    assert [change.step for change in change_points(range(60), values).changes] == [since]


@pytest.mark.parametrize("length", [16, 32, 64])
def test_what_a_line_may_be_off_is_the_error_of_its_prediction_and_that_of_the_newest_median(length: int) -> None:
    # Of least squares, from the matrix of its normal equations: at the middle of the newest steps.
    at = np.arange(length)
    line = np.stack([np.ones(length), at], axis=1)
    ahead = np.array([1.0, length + (RECENT - 1) / 2])
    of_line = ahead @ np.linalg.inv(line.T @ line) @ ahead
    of_median = math.pi / 2 / RECENT

    assert _may_be_off(length) == pytest.approx(math.sqrt(of_line + of_median), rel=0.003)


@pytest.mark.parametrize("deviations", [1.0, 3.0])
@pytest.mark.parametrize("above", range(0, 300, 20))
def test_ranks_are_beyond_by_so_many_deviations_of_mann_and_whitney(above: int, deviations: float) -> None:
    # 20 values of before, and 15 newer ones of which each is above some of them: `above` pairs in all.
    reference = np.arange(20.0)
    recent = np.array([above // 15 + (number < above % 15) - 0.5 for number in range(15)])
    pairs, deviation = 300, math.sqrt(300 * 36 / 12)

    assert _is_beyond(reference, recent, deviations) == (above - pairs / 2 >= deviations * deviation)


def test_of_few_values_nearly_all_pairs_are_enough_and_equal_ones_count_half() -> None:
    reference = np.arange(4.0)

    assert _is_beyond(reference, np.array([9.0, 9.0, 9.0]), 99.0)
    assert not _is_beyond(reference, np.array([9.0, 9.0, 3.0]), 99.0)
    assert _is_beyond(np.zeros(50), np.zeros(50), 0.0)
    assert not _is_beyond(np.zeros(50), np.zeros(50), 0.01)


@pytest.mark.parametrize("curvature", [0.01, -0.01, 0.0])
def test_a_parabola_rises_beyond_its_line_by_what_its_square_says(curvature: float) -> None:
    x = np.arange(63) - 31.0
    # Its medians in thirds are 21², 5² and 21², whose second difference tells the curvature; the newest steps lie 37.5
    # from the middle, which is 37.5 / 21 thirds.
    expected = max(0.0, curvature * (21**2 - 5**2) * ((37.5 / 21) ** 2 - 0.75))
    assert _bend(curvature * x**2) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("before", "after"), [(1.0, 4.0), (-1.0, -4.0), (1e300, 4e300)])
def test_a_level_of_a_series_that_does_not_vary_is_told_exactly(before: float, after: float) -> None:
    found = change_points(range(100, 200), [before] * 60 + [after] * 40)

    (change,) = found.changes
    assert (change.step, change.before, change.after) == (160, pytest.approx(before), after)
    assert change.by == pytest.approx(after - before)
    assert (found.values, found.is_told) == (100, True)


def test_a_change_of_what_never_scattered_is_larger_than_any_other() -> None:
    [change] = change_points(range(100), [0.0] * 60 + [0.5] * 40).changes

    assert (change.step, change.before, change.after) == (60, 0.0, 0.5)
    assert change.size > 1e8
