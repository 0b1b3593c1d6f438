"""Where the time of a step goes: an account that adds up to the slowest rank's step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from otel_ml_service.findings.frontier import exposed
from otel_ml_service.findings.nesting import BESIDE
from otel_ml_service.findings.step_timers import StepTimers

NAN = float("nan")
SECONDS = st.one_of(st.just(NAN), st.floats(0.0, 1e4))


def timers(seconds, *phases, ranks=None):
    table = np.array(seconds, dtype=float)
    return StepTimers(tuple(ranks or range(len(table))), phases, table)


@given(arrays.arrays(np.float64, st.tuples(st.integers(2, 9), st.integers(2, 7)), elements=SECONDS))
def test_what_phases_expose_adds_up_to_the_step_of_the_slowest_rank(table):
    phases = tuple(f"phase {column}" for column in range(table.shape[1]))

    account = exposed(timers(table, *phases), {})

    assert sum(one.seconds for one in account) == pytest.approx(np.nansum(table, axis=1).max(), abs=1e-9)
    assert all(one.seconds >= 0 for one in account)
    assert np.nansum(table, axis=1)[account[-1].rank] == pytest.approx(np.nansum(table, axis=1).max(), abs=1e-9)


@given(arrays.arrays(np.float64, st.tuples(st.integers(2, 9), st.just(3)), elements=st.floats(0.0, 100.0)))
def test_with_a_timer_of_whole_steps_all_of_it_is_in_the_account(table):
    inside, outside = table[:, :2], table[:, 2]
    whole = np.column_stack((inside, inside.sum(axis=1) + outside))

    account = exposed(timers(whole, "forward", "backward", "step"), {})

    assert [one.phase for one in account] == ["untimed", "forward", "backward"]
    assert sum(one.seconds for one in account) == pytest.approx(whole[:, 2].max(), abs=1e-9)


def test_waiting_for_a_slow_rank_is_not_counted_beside_its_work():
    # Rank 2 works for 20 ms, the others for 5, and wait: the slowest of each phase are 20 and 16 ms.
    account = exposed(timers([[0.005, 0.016]] * 2 + [[0.020, 0.001]] + [[0.005, 0.016]], "forward", "all_reduce"), {})

    assert [(one.phase, round(one.seconds, 6)) for one in account] == [("forward", 0.02), ("all_reduce", 0.001)]
    assert account[0].rank == 2


def test_a_timer_around_others_counts_without_them():
    account = exposed(
        timers([[1.0, 3.0, 0.5], [1.0, 3.5, 0.5]], "attention", "forward", "optimizer"), {"attention": "forward"}
    )

    assert {one.phase: one.seconds for one in account} == {"attention": 1.0, "forward": 2.5, "optimizer": 0.5}


def test_what_a_thread_does_beside_the_others_does_not_take_the_account_away():
    # A thread reduces for 10 ms, from within `backward` on until 4 ms after it: each step of 19 ms adds up.
    table = [[0.005, 0.008, 0.010, 0.001, 0.019], [0.004, 0.008, 0.011, 0.001, 0.019]]

    account = exposed(timers(table, "forward", "backward", "all_reduce", "optimizer", "step"), {"all_reduce": BESIDE})

    assert {one.phase: round(one.seconds, 6) for one in account} == {
        "untimed": 0.006, "forward": 0.004, "backward": 0.008, "optimizer": 0.001,
    }  # fmt: skip


@pytest.mark.parametrize(
    "nothing",
    [
        timers([[1.0, 2.0]], "forward", "backward"),
        timers([[1.0], [2.0]], "forward"),
        timers([[1.0, 2.0, 2.5]] * 2, "forward", "backward", "step"),
        timers(np.zeros((2, 0))),
    ],
    ids=["one rank", "one timer", "timers that overlap", "no timers"],
)
def test_where_there_is_no_account_none_is_given(nothing):
    assert exposed(nothing, {}) == []


PIPELINE = ("forward-recv", "forward-compute", "backward-compute", "grads-reduce-scatter")


@given(arrays.arrays(np.float64, st.tuples(st.integers(2, 9), st.just(4)), elements=SECONDS))
def test_the_account_of_a_pipeline_adds_up_to_the_step_of_the_slowest_rank(table):
    steps = np.nansum(table, axis=1) + np.arange(len(table))

    account = exposed(timers(np.column_stack((table, steps)), *PIPELINE, "step"), {})

    assert sum(one.seconds for one in account) == pytest.approx(steps.max(), abs=1e-9)
    assert all(one.seconds >= 0 for one in account)
    assert len({one.rank for one in account}) == 1


def test_sending_and_receiving_at_once_is_not_counted_twice_where_another_rank_sets_the_pace():
    table = [[NAN, 10.0, 20.0, 0.5], [25.0, 3.0, 2.0, 25.0]]

    account = exposed(timers(table, "forward-recv", "forward-compute", "backward-compute", "backward-send"), {})

    assert sum(one.seconds for one in account) == 30.5


def test_the_account_of_a_pipeline_is_that_of_the_rank_that_all_wait_for():
    table = [[NAN, 1.0, 2.0, 3.5], [0.5, 2.0, 4.0, 0.0]]

    account = exposed(timers(table, *PIPELINE), {})

    assert {one.phase: (one.seconds, one.rank) for one in account} == {
        "forward-recv": (0.5, 1),
        "forward-compute": (2.0, 1),
        "backward-compute": (4.0, 1),
        "grads-reduce-scatter": (0.0, 1),
    }


def test_megatrons_timer_around_a_whole_pipeline_counts_without_what_is_inside():
    table = [[NAN, 1.0, 2.0, 1.0, 3.5], [0.5, 2.0, 2.0, 0.0, 4.75]]
    phases = ("forward-recv", "forward-compute", "backward-compute", "grads-reduce-scatter", "forward-backward")

    account = exposed(timers(table, *phases), {})

    assert {one.phase: one.seconds for one in account if one.seconds} == {
        "forward-recv": 0.5, "forward-compute": 2.0, "backward-compute": 2.0, "forward-backward": 0.25,
    }  # fmt: skip
