"""What a step would take without a slow rank: never more than is taken away, and nothing where it is not needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from otel_ml_service.findings.what_if import saved_without, saved_without_stage

SECONDS = st.floats(0, 100, allow_nan=False, width=32)

LINES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6), elements=SECONDS)


def usual(line: np.ndarray, row: int, column: int) -> float:
    others = np.sort(np.delete(line[:, column], row))
    return float(others[(len(others) - 1) // 2])


@given(LINES, st.data())
def test_no_more_is_saved_than_is_taken_away(line: np.ndarray, data: st.DataObject) -> None:
    row, column = (data.draw(st.integers(0, size - 1)) for size in line.shape)

    saved = saved_without(line, row, column)

    step = np.cumsum(line, axis=1).max()
    assert 0 <= saved <= line[row, column] + 1e-9
    assert saved <= step + 1e-9


@given(LINES, st.data())
def test_where_nobody_waits_a_step_without_it_is_the_longest_of_what_remains(
    line: np.ndarray, data: st.DataObject
) -> None:
    """One phase: nobody has a head start, so nobody waits."""
    alone = line[:, :1]
    row = data.draw(st.integers(0, len(alone) - 1))
    quicker = alone.copy()
    quicker[row, 0] = min(alone[row, 0], usual(alone, row, 0))

    assert saved_without(alone, row, 0) == pytest.approx(alone.max() - quicker.max(), abs=1e-9)


@given(arrays(np.float64, st.integers(3, 8), elements=st.floats(1, 2, width=32)), st.floats(0.5, 50), st.floats(0.5, 5))
def test_what_all_wait_for_is_saved_but_for_the_next_one(work: np.ndarray, extra: float, after: float) -> None:
    """`backward` waits for the last rank before it ends; its name does not tell."""
    work[0] += extra
    line = np.column_stack((work, work.max() - work + after))

    others = np.sort(work[1:])
    usual_work = min(float(others[(len(others) - 1) // 2]), float(work[0]))

    assert saved_without(line, 0, 0) == pytest.approx(work.max() - max(others[-1], usual_work), rel=1e-6, abs=1e-9)


@given(arrays(np.float64, st.integers(2, 8), elements=SECONDS), st.data())
def test_only_the_stage_with_the_most_work_sets_the_pace(work: np.ndarray, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(work) - 1))

    saved = saved_without_stage(work, place)

    assert (saved > 0) == bool((work[place] > np.delete(work, place)).all())
    assert saved <= work[place] - work.mean() + 1e-9 or saved == 0
