"""Medians over ranks against those of Python's own library, column by column."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from otel_ml_service.findings.medians import low_median, median


@pytest.mark.parametrize("holes", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("ranks", range(7))
@pytest.mark.parametrize("least", [1, 2, 4])
def test_a_median_is_that_of_the_numbers_there_are_where_these_are_enough(holes: float, ranks: int, least: int) -> None:
    rng = np.random.default_rng(ranks)
    values = rng.choice([1.0, 2.5, 2.5, 4.0, math.inf], size=(ranks, 50))
    values[rng.random(values.shape) < holes] = np.nan

    for found, expected in (
        (low_median(values, least), statistics.median_low),
        (median(values, least), statistics.median),
    ):
        columns = [column[~np.isnan(column)].tolist() for column in values.T]
        right = [expected(numbers) if len(numbers) >= least else math.nan for numbers in columns]
        np.testing.assert_array_equal(found, right)
