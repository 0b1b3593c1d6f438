"""Every tuple of series in use has one shape, and those in no use are let go of where there are too many."""

from __future__ import annotations

import pytest

from otel_ml_service.aggregation.interned_series import MAX_IDLE, Shapes
from otel_ml_service.aggregation.observation import SeriesKey


def series(number: int) -> tuple[SeriesKey, ...]:
    """Return a tuple of its own, equal to every other one of that number."""
    return (SeriesKey(f"loss/{number}", (), "moments"),)


def test_equal_series_have_one_shape_and_others_have_another() -> None:
    shapes = Shapes()

    found = [shapes.of(series(number)) for number in (0, 1, 0, 1, 2)]

    assert [shape.number for shape in found] == [0, 1, 0, 1, 2]
    assert found[0] is found[2]
    assert [shape.number for shape in shapes.fresh] == [0, 1, 2]
    assert {number: shape.series for number, shape in shapes.known.items()} == {n: series(n) for n in range(3)}


def test_what_was_restored_is_not_new_and_no_number_is_given_twice() -> None:
    shapes = Shapes()
    shapes.restore(7, series(7))
    shapes.restore(3, series(3))

    assert shapes.of(series(7)).number == 7
    assert shapes.fresh == []
    assert shapes.of(series(0)).number == 8


@pytest.mark.parametrize("more", [0, 1])
def test_shapes_that_nobody_uses_are_let_go_of_where_there_are_too_many(more: int) -> None:
    shapes, kept = Shapes(), [series(number) for number in range(MAX_IDLE + more)]
    for one in kept:
        shapes.of(one)
    used = shapes.of(kept[5])
    used.users += 1

    idle = shapes.tidy()

    assert len(idle) == (MAX_IDLE if more else 0)
    assert used not in idle
    assert shapes.of(kept[5]) is shapes.known[5] is used
    assert shapes.of(kept[0]).number == (MAX_IDLE + 1 if more else 0)
