"""Ages of runs are told in the unit that fits what is shown of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.cli.figures import age

_LENGTHS = {"s": 1, "min": 60, "h": 3_600, "d": 86_400}
_OF_THE_NEXT = {"s": 60, "min": 60, "h": 24}

_AROUND_AN_EDGE = st.builds(float.__mul__, st.sampled_from([60.0, 3_600.0, 86_400.0]), st.floats(0.98, 1.02))


@pytest.mark.parametrize(
    ("seconds", "read"),
    [
        (59.4, "59 s"), (59.7, "1 min"), (3_569, "59 min"), (3_571, "1 h"), (84_599, "23 h"), (84_601, "1 d"),
        (-3, "0 s"), (200_000, "2 d"),
    ],
)  # fmt: skip
def test_an_age_is_told_in_the_unit_that_fits_once_it_is_rounded(seconds: float, read: str) -> None:
    assert age(seconds) == read


@given(_AROUND_AN_EDGE | st.floats(0, 1e9))
def test_an_age_is_never_as_many_of_a_unit_as_make_the_next_one(seconds: float) -> None:
    number, unit = age(seconds).split()

    assert int(number) < _OF_THE_NEXT.get(unit, float("inf"))
    assert abs(int(number) * _LENGTHS[unit] - seconds) <= _LENGTHS[unit] / 2
