"""Intervals beside those of a table of Student's t (two-sided, 95 %)."""

from __future__ import annotations

import math
from statistics import fmean, variance

import pytest

from otel_ml_service.why.interval import Interval, _student, of_differences, of_means

T = {3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 15: 2.131, 30: 2.042, 60: 2.000, 1000: 1.962}


def blocks(means: list[float], each: int = 4) -> list[float]:
    """Return values whose blocks of `each` neighbors have these means."""
    return [mean + away for mean in means for away in (([-0.5, 0.5] * each)[:each])]


@pytest.mark.parametrize("free", list(T))
def test_the_quantile_is_that_of_the_table_to_one_percent(free: int) -> None:
    assert _student(free) == pytest.approx(T[free], rel=0.01)


@pytest.mark.parametrize(("count", "each"), [(16, 4), (16, 8), (4, 4), (8, 4)])
def test_differences_are_as_sure_as_their_blocks_agree(count: int, each: int) -> None:
    means = [float(number % 3) for number in range(count)]

    found = of_differences(blocks(means, each))

    reach = T.get(count - 1, 0.0) * math.sqrt(variance(means) / count)
    assert found.by == pytest.approx(fmean(means))
    assert found.high is not None
    assert found.low is not None
    assert found.high - found.by == pytest.approx(reach, rel=0.01)
    assert found.by - found.low == pytest.approx(reach, rel=0.01)


def test_blocks_are_as_even_as_whole_numbers_allow() -> None:
    # Of 18 values 4 blocks begin at 0, 4, 9 and 13.
    values = [0.0] * 4 + [1.0] * 5 + [2.0] * 4 + [3.0] * 5
    found = of_differences(values)

    assert found.high is not None
    assert found.high - found.by == pytest.approx(T[3] * math.sqrt(variance([0.0, 1.0, 2.0, 3.0]) / 4), rel=0.01)


@pytest.mark.parametrize(("values", "is_told"), [(15, False), (16, True)])
def test_fewer_than_four_blocks_of_four_tell_nothing(values: int, is_told: bool) -> None:
    one = of_differences([1.0] * values)
    two = of_means([1.0] * 64, [2.0] * values)
    other = of_means([1.0] * values, [2.0] * 64)

    assert [found.low is not None for found in (one, two, other)] == [is_told] * 3
    assert (one.by, two.by, other.by) == (1.0, 1.0, 1.0)


def test_two_means_that_scatter_alike_have_the_freedom_of_both() -> None:
    means = [float(number % 2) for number in range(16)]

    found = of_means(blocks(means), blocks([mean + 5.0 for mean in means]))

    assert found.by == pytest.approx(5.0)
    assert found.low is not None
    # 2 * (16 - 1) degrees of freedom.
    assert found.by - found.low == pytest.approx(T[30] * math.sqrt(2 * variance(means) / 16), rel=0.01)


def test_where_one_of_them_is_known_exactly_the_other_one_counts() -> None:
    means = [float(number % 2) for number in range(16)]

    found = of_means(blocks(means), [5.0] * 64)

    assert found.high is not None
    assert found.high - found.by == pytest.approx(T[15] * math.sqrt(variance(means) / 16), rel=0.01)


def test_welch_with_blocks_of_different_numbers() -> None:
    a, b = [float(number % 2) for number in range(16)], [0.0, 2.0, 0.0, 2.0]
    of_a, of_b = variance(a) / 16, variance(b) / 4
    free = (of_a + of_b) ** 2 / (of_a**2 / 15 + of_b**2 / 3)

    found = of_means(blocks(a), blocks(b))

    assert 3 < free < 4
    assert found.high is not None
    reach = found.high - found.by
    assert T[4] * math.sqrt(of_a + of_b) < reach < T[3] * math.sqrt(of_a + of_b) * 1.01


@pytest.mark.parametrize(
    ("low", "high", "is_sure"),
    [
        (None, None, False),
        (-1.0, 1.0, False),
        (0.0, 1.0, False),
        (-1.0, 0.0, False),
        (0.1, 1.0, True),
        (-1.0, -0.1, True),
    ],
)
def test_there_is_a_difference_where_zero_is_not_in_it(low: float | None, high: float | None, is_sure: bool) -> None:
    assert Interval(0.0, low, high).is_sure == is_sure
