"""What the table of reductions says of two parts is what holds of the whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml.wire.reductions import LOGS, MAX, MIN, REDUCTIONS, STATISTICS

_values = st.lists(st.integers(-1000, 1000).map(float) | st.just(math.nan), min_size=1, max_size=4)


def extreme(choose: Callable[[Sequence[float]], float]) -> Callable[[Sequence[float]], float]:
    return lambda values: math.nan if any(map(math.isnan, values)) else choose(values)


OF_ALL: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum, "min": extreme(min), "max": extreme(max), "count": lambda values: float(len(values)),
}  # fmt: skip


def test_what_parts_tell_of_the_whole_is_known_of_these() -> None:
    assert {name for name, row in REDUCTIONS.items() if row.joined is not None} == OF_ALL.keys()


@pytest.mark.parametrize("name", OF_ALL)
@given(one=_values, other=_values)
def test_two_parts_together_are_the_whole(name: str, one: list[float], other: list[float]) -> None:
    joined, of_all = REDUCTIONS[name].joined, OF_ALL[name]
    assert joined is not None

    assert joined(of_all(one), of_all(other)) == pytest.approx(of_all([*one, *other]), nan_ok=True)


@given(st.floats())
def test_the_extremes_of_nothing_change_no_other(value: float) -> None:
    assert min(value, MIN.neutral) == pytest.approx(value, nan_ok=True)
    assert max(value, MAX.neutral) == pytest.approx(value, nan_ok=True)


@given(st.floats(1e-300, 1e300), st.floats(1e-3, 1e3))
def test_a_logarithm_counts_by_its_weight(value: float, weight: float) -> None:
    assert LOGS.term(value, weight) == pytest.approx(weight * math.log(value))


def test_of_zero_there_is_a_logarithm_without_end_and_of_less_there_is_none() -> None:
    assert LOGS.term(0.0, 2.0) == -math.inf
    assert math.isnan(LOGS.term(-1.0, 2.0))
    assert {LOGS.term(value, 0.0) for value in (-1.0, 0.0, 8.0)} == {0.0}


@pytest.mark.parametrize("statistic", [one for one in STATISTICS if one is not LOGS])
def test_what_is_no_sum_of_terms_has_none(statistic: object) -> None:
    assert statistic.term(3.0, 2.0) == 0.0  # type: ignore[attr-defined]
