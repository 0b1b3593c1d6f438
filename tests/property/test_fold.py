"""Rows of partial states, folded: as if what they were made of had been recorded by one process."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_service.aggregation.fold import STATS, Floats, Rows, fold_rows
from tests.strategies import anything, integers, stats_of

Records = Sequence[tuple[list[float], list[float] | None]]
"""Values, and their weights where they have some, of each row of one series."""


@st.composite
def rows_of_a_series(draw: st.DrawFn) -> Records:
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        values = draw(st.lists(integers, max_size=4))
        weights = st.lists(st.integers(1, 5).map(float), min_size=len(values), max_size=len(values))
        rows.append((values, draw(st.none() | weights)))
    return rows


EMPTY = [0.0, 0.0] + [math.nan] * (STATS - 2)
"""A histogram of another SDK in which nothing was recorded."""


def row_of(values: list[float], weight: list[float] | None) -> list[float]:
    return list(EMPTY) if not values else stats_of(values, weight)


def folded(columns: Sequence[Records], *, rectangular: bool) -> Floats:
    """Fold the rows of some series; all at once where each has as many, else as they come."""
    cells = [(height, at) for at, rows in enumerate(columns) for height in range(len(rows))]
    cells.sort()
    stats = np.array([row_of(*columns[at][height]) for height, at in cells], dtype=float).reshape(-1, STATS)
    numbers = np.arange(len(cells), dtype=np.int64)
    column = np.array([at for _, at in cells], dtype=np.int64)
    times = np.zeros((len(cells), 2), dtype=np.int64)
    return fold_rows(Rows(stats, times, numbers, column, len(columns), rectangular))


def of_one_process(rows: Records) -> list[float]:
    """Return what one process would have sent, that recorded all of it: a value without a weight weighs 1."""
    values = [value for some, _ in rows for value in some]
    if not any(weights for _, weights in rows):
        return stats_of(values)
    return stats_of(values, [one for some, weights in rows for one in weights or [1.0] * len(some)])


@given(st.lists(rows_of_a_series(), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_rows_of_several_processes_and_empty_ones_among_them_are_folded_like_those_of_one(
    columns: list[Records],
) -> None:
    result = folded(columns, rectangular=False)

    for at, rows in enumerate(columns):
        values = [value for some, _ in rows for value in some]
        # Of a lone value its writer says no more, and of nothing there is nothing.
        known = STATS if len(values) > 1 else min(len(values), 1) * 3 + 2
        expected = of_one_process(rows) if values else EMPTY
        assert result[at, :known].tolist() == pytest.approx(expected[:known], rel=1e-9, abs=1e-6, nan_ok=True)


@given(st.integers(1, 4), st.integers(1, 4), st.data())
@settings(max_examples=60, deadline=None)
def test_what_all_writers_sent_alike_is_folded_as_what_they_did_not(
    width: int, height: int, data: st.DataObject
) -> None:
    lone = st.tuples(st.lists(anything, min_size=1, max_size=3), st.none())
    columns = [[data.draw(lone) for _ in range(height)] for _ in range(width)]

    together, apart = folded(columns, rectangular=True), folded(columns, rectangular=False)

    assert np.array_equal(together, apart, equal_nan=True)
