"""Which change of a metric is told: the first of those that are as large as the largest, or nearly the way back."""

from __future__ import annotations

import math

import pytest

from otel_ml_service.findings.change_points import Change
from otel_ml_service.why.metric_change import _counts, _level, _size
from otel_ml_service.why.turn import Turn, range_of


def turn(effect: float | None) -> Turn:
    return Turn(10, 20, "a sentence", effect)


@pytest.mark.parametrize(
    ("effect", "largest", "counts"),
    [
        (0.9, 1.0, True), (0.89, 1.0, False), (1.0, 1.0, True), (-0.9, -1.0, True), (-0.89, -1.0, False),
        (-0.5, 1.0, True), (-0.49, 1.0, False), (0.5, -1.0, True), (0.49, -1.0, False),
        (None, None, True), (1e9, None, False), (0.5, 0.5, True),
    ],
)  # fmt: skip
def test_what_is_nearly_as_large_counts_and_of_the_way_back_half(
    effect: float | None, largest: float | None, counts: bool
) -> None:
    assert _counts(turn(effect), turn(largest)) == counts


@pytest.mark.parametrize(("effect", "size"), [(0.5, 0.5), (-0.5, 0.5), (None, math.inf)])
def test_what_is_no_number_any_more_is_larger_than_any_change(effect: float | None, size: float) -> None:
    assert _size(turn(effect)) == size


@pytest.mark.parametrize(
    ("before", "after", "size", "said"),
    [
        (1.0, 3.0, 4.25, "reward rose at step 1,080 from 1 to 3 (+2, 4.2 times its scatter)."),
        (3.0, 1.0, 4.25, "reward fell at step 1,080 from 3 to 1 (-2, 4.2 times its scatter)."),
        (1.0, 3.0, math.inf, "reward rose at step 1,080 from 1 to 3 (+2; it did not vary before)."),
    ],
)
def test_a_change_of_level_is_told_with_its_scatters(before: float, after: float, size: float, said: str) -> None:
    found = _level("reward", Change(1080, 1091, before, after, size))

    assert (found.step, found.found_at, found.effect) == (1080, 1091, after - before)
    assert found.text.replace("−", "-") == said


@pytest.mark.parametrize(
    ("first", "last", "begin", "end"),
    [(5, 5, 5 - 64, 5), (5, 6, 5, 6), (None, 6, -math.inf, 6), (5, None, 5, math.inf)],
)
def test_of_one_step_what_came_right_before_it_counts(
    first: int | None, last: int | None, begin: float, end: float
) -> None:
    assert range_of(first, last) == (begin, end)
