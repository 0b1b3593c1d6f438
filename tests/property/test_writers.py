"""The incarnations of a rank, in whatever order they are heard: who came before whom, and when each lived."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_ml_service.aggregation.writer_state import WriterState
from otel_ml_service.aggregation.writers import Writers
from tests.strategies import writer


@given(heard=st.permutations(range(5)), knows_births=st.booleans(), others=st.integers(0, 2))
def test_incarnations_stand_in_the_order_of_their_births_where_that_is_known_else_as_they_were_heard(
    heard: list[int], knows_births: bool, others: int
) -> None:
    writers = Writers()
    for number in range(others):
        writers.enthrone(writers.of(writer(1, instance=f"other-{number}")))
    boot = "b" if knows_births else ""
    states = [writers.of(writer(0, instance=f"life-{birth}", boot=boot, born=100.0 + birth)) for birth in range(5)]
    for birth in heard:
        writers.enthrone(states[birth])

    order = [states[birth] for birth in (sorted(heard) if knows_births else heard)]
    numbers = [state.number for state in order]
    assert [state for state in order if state.newest] == [order[-1]]
    for place, state in enumerate(order):
        before, after = order[:place], order[place + 1 :]
        assert writers.predecessor(state) is (before[-1] if before else None)
        assert writers.replacement(state) is (after[0] if after else None)
        assert writers.successor(state) is (after[0] if after and knows_births else None)
        assert writers.newest(state) is order[-1]
        assert writers.incarnations(state) == numbers


def test_of_a_rank_of_which_nobody_has_delivered_a_step_nothing_is_known() -> None:
    writers = Writers()
    state = writers.of(writer(0))

    assert (writers.predecessor(state), writers.successor(state), writers.replacement(state)) == (None, None, None)
    assert (writers.newest(state), writers.incarnations(state)) == (state, [])
    assert (writers.born(state), state.newest) == (None, False)


Beats = list[tuple[int, float, float]]
"""Of whom, when it was taken by the clock of its boot, and for how long it was on its way."""

beats = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 40).map(float), st.integers(0, 40).map(lambda half: half / 2)),
    min_size=1,
    max_size=20,
)


def lives(heard: Beats) -> tuple[Writers, list[WriterState]]:
    """Return two processes of each of two machines, which began one and two seconds after their boots, and beat."""
    writers = Writers()
    states = [writers.of(writer(rank, boot=f"boot {rank // 2}", born=1.0 + rank % 2)) for rank in range(4)]
    for rank, taken, lag in heard:
        writers.lived(
            states[rank], 2.0 + taken, round((1_000 + taken) * 1e9), 10_000.0 * (rank // 2) + 2.0 + taken + lag
        )
    return writers, states


@given(beats)
def test_a_life_is_dated_by_the_message_of_its_machine_that_was_under_way_for_the_shortest_time(heard: Beats) -> None:
    writers, states = lives(heard)

    for rank, state in enumerate(states):
        machine = rank // 2
        lags = [lag for one, _, lag in heard if one // 2 == machine]
        if not lags:
            assert writers.born(state) is None
            continue
        assert writers.born(state) == pytest.approx(state.writer.born + 10_000.0 * machine + min(lags))
        newest = max(taken for one, taken, _ in heard if one // 2 == machine)
        own = [taken for one, taken, _ in heard if one == rank]
        if own:
            assert writers.silent_s(state, 1e6) == pytest.approx(newest - max(own))
        for other in states:
            is_known = machine == other.writer.rank // 2 or any(one // 2 == other.writer.rank // 2 for one, *_ in heard)
            assert writers.can_compare(state, other) == is_known


@given(beats, st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_who_began_first_is_told_by_the_clocks_and_by_more_than_is_asked_for(heard: Beats, by_s: float) -> None:
    writers, states = lives(heard)

    for state in states:
        for other in states:
            if state.writer.boot == other.writer.boot:
                expected = state.writer.born + by_s < other.writer.born
            else:
                one, two = writers.born(state), writers.born(other)
                expected = one is not None and two is not None and one + by_s < two
            assert writers.began_before(state, other, by_s=by_s) == expected
            assert not (writers.began_before(state, other) and writers.began_before(other, state))
