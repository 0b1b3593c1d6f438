"""A set of numbers as intervals is the set that Python has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.intervals import IntervalSet

SMALL = st.integers(1, 24)
NUMBERS = st.lists(SMALL)


def made_of(numbers: set[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive numbers, ascending."""
    begins = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number for number in numbers if number + 1 not in numbers)
    return list(zip(begins, ends, strict=True))


@given(NUMBERS)
def test_a_number_is_there_once_it_was_added_and_new_the_first_time(numbers: list[int]) -> None:
    seen, there = IntervalSet(), set[int]()

    for number in numbers:
        assert seen.add(number) == (number not in there)
        there.add(number)
        assert seen.pairs() == made_of(there)

    assert [number for number in range(27) if number in seen] == sorted(there)
    assert len(seen) == len(made_of(there))
    assert IntervalSet(seen).pairs() == list(seen) == seen.pairs()


@given(NUMBERS, SMALL, st.integers(1, 5))
def test_numbers_that_follow_all_others_are_added_together(numbers: list[int], first: int, count: int) -> None:
    seen, there = IntervalSet(made_of(set(numbers))), set(numbers)

    assert seen.go_on(first, count) == (first > max(there, default=0))

    there |= set(range(first, first + count)) if first > max(there, default=0) else set()
    assert seen.pairs() == made_of(there)


@given(NUMBERS, st.integers(0, 26), st.integers(0, 26))
def test_what_is_asked_of_the_numbers_is_what_they_are(numbers: list[int], low: int, high: int) -> None:
    there = set(numbers)
    seen = IntervalSet(made_of(there))

    assert seen.any_between(low, high) == any(low < number < high for number in there)
    assert seen.prefix_end(low) == next(number for number in range(low, 28) if number not in there) - 1
    assert seen.highest == max(there, default=None)
    assert seen.highest_below(low) == max((number for number in there if number < low), default=0)


@given(NUMBERS, st.integers(1, 6))
def test_of_too_many_intervals_the_lowest_become_one_or_are_forgotten(numbers: list[int], keep: int) -> None:
    pairs = made_of(set(numbers))
    filled, forgotten = IntervalSet(pairs), IntervalSet(pairs)
    filled.fill_lowest(keep)
    forgotten.forget_lowest(keep)

    assert forgotten.pairs() == pairs[-keep:]
    joined = [(pairs[0][0], pairs[-keep][1])] if len(pairs) > keep else pairs[:1]
    assert filled.pairs() == [*joined, *pairs[-keep:][1:]]
