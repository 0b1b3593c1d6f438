"""Which series were exported at a step is remembered for good, in a few bytes a step."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml_service.aggregation.exported_series import ExportedSeries, Series
from otel_ml_service.aggregation.lazy_entries import LazyEntries

LOSS: Series = ("loss", (), None)
SETS = [
    frozenset(exported)
    for exported in (
        [LOSS],
        [LOSS, ("time/step", (), None)],
        [("loss", (("task", "math"),), None), ("reward", (), 3)],
        [],
    )
]
STEPS = st.integers(0, 6) | st.integers(1021, 1026)
NOTES = st.lists(st.tuples(st.integers(0, 1), STEPS, st.sampled_from([0, 0, 0, 1, 1, 2, 3])), min_size=2)
STORED = st.sets(st.integers(0, 40))


def noted(notes: Sequence[tuple[int, int, int]], stored: set[int]) -> LazyEntries:
    """Return the disk after sets were noted at steps of attempts, and stored after some of them."""
    disk = LazyEntries(None, {})
    series = ExportedSeries(disk)
    for place, (attempt, step, number) in enumerate(notes):
        series.note(attempt, step, SETS[number])
        if place in stored:
            series.store()
            series = ExportedSeries(disk)
    series.store()
    return disk


@given(NOTES, STORED)
@example([(0, 0, 0), (0, 2, 0)], set())  # between two steps of one set, one of none
@example([(0, 5, 0), (0, 0, 1), (0, 2, 1)], set())
def test_at_each_step_those_were_exported_that_were_noted_there_last_in_whatever_order_steps_come(
    notes: list[tuple[int, int, int]], stored: set[int]
) -> None:
    found = ExportedSeries(noted(notes, stored))
    last = {(attempt, step): SETS[number] for attempt, step, number in notes}

    for attempt in (0, 1):
        for step in (*range(8), *range(1020, 1028)):
            assert found.at(attempt, step) == last.get((attempt, step), frozenset())


@given(st.permutations(range(12)), st.integers(1, 11))
def test_steps_that_follow_each_other_take_as_much_room_in_whatever_order_they_come(
    order: list[int], second: int
) -> None:
    """Each half has a set of its own, and is one run of steps."""
    in_order = [(0, step, int(step >= second)) for step in range(12)]
    any_order = [in_order[0], in_order[-1], *(in_order[step] for step in order)]

    assert noted(any_order, set()).get("disk/names/0/0") == noted(in_order, set()).get("disk/names/0/0")


def test_what_is_on_the_disk_is_written_again_where_it_changed_and_nowhere_else() -> None:
    disk = LazyEntries(None, {})
    series = ExportedSeries(disk)
    for step in (0, 2_000):
        series.note(0, step, SETS[0])
    series.store()
    disk.hand_out()

    series.note(0, 2_001, SETS[0])
    series.store()

    assert disk.hand_out().keys() == {"disk/names/0/1"}
