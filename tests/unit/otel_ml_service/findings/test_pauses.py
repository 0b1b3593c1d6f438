"""Steps in which ranks stand still now and then: what is said of them, and that nobody is called slow for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers

RANKS = 8
PHASES = ("data", "forward", "backward", "all_reduce", "checkpoint")

Change = Callable[[int, np.ndarray], None]
"""Changes the seconds [ranks, data to backward and checkpoint] of a step."""


def played(
    change: Change, steps: range = range(80), step_findings: StepFindings | None = None
) -> tuple[StepFindings, list[Finding]]:
    step_findings, draw, told = step_findings or StepFindings(), np.random.default_rng(3), []
    for step in steps:
        work = np.array([0.3, 1.0, 2.0, 0.0]) * draw.lognormal(0.0, 0.01, (RANKS, 4))
        change(step, work)
        before = work[:, :3].sum(axis=1)
        table = np.column_stack((work[:, :3], before.max() - before + 0.1, work[:, 3]))
        told += step_findings.step(step, StepTimers(tuple(range(RANKS)), PHASES, table), {})
    return step_findings, told


def every_ten_steps(step: int, work: np.ndarray) -> None:
    if step % 10 == 5 and step > 10:
        work[:, 3] = 4.0


def test_checkpoints_are_one_finding_that_says_how_many_there_were_and_what_they_cost():
    step_findings, told = played(every_ten_steps)

    [finding] = step_findings
    assert told == [finding] or [one.kind for one in told] == ["pause"]
    assert (finding.kind, finding.place, finding.phase, finding.rank) == ("pause", "nobody", "checkpoint", None)
    assert (finding.since, finding.times, finding.every) == (15, 7, 10)
    assert finding.cost_s == pytest.approx(7 * 4.0, rel=0.02)
    assert finding.extra_s == pytest.approx(28.0 / (79 - 15 + 1), rel=0.02)
    assert finding.slowdown == pytest.approx(finding.extra_s / 3.4, rel=0.03)


def test_the_last_step_of_what_is_over_is_that_of_the_last_pause():
    def change(step: int, work: np.ndarray) -> None:
        if step < 50:
            every_ten_steps(step, work)

    step_findings, told = played(change, range(100))

    assert list(step_findings) == []
    assert [(one.is_over, one.since, one.last, one.times) for one in told] == [
        (False, 15, 36, 3),  # in the step after the third one
        (True, 15, 45, 4),
    ]


def test_the_rank_for_which_all_wait_each_time_is_named_and_is_not_called_slow():
    def change(step: int, work: np.ndarray) -> None:
        if step % 5 == 0 and step > 10:
            work[0, 0] += 3.0

    step_findings, told = played(change)

    [finding] = step_findings
    assert (finding.kind, finding.place, finding.phase) == ("pause", "rank 0", "data")
    assert [one.kind for one in told] == ["pause"]


def test_who_has_a_turn_to_collect_garbage_is_not_named():
    draw = np.random.default_rng(7)

    def change(step: int, work: np.ndarray) -> None:
        if step % 4 == 0 and step > 10:
            work[draw.integers(RANKS), draw.integers(1, 3)] += 2.5

    step_findings, told = played(change)

    [finding] = step_findings
    assert (finding.kind, finding.place, finding.phase, finding.every) == ("pause", "nobody", "", 4)
    assert [one.kind for one in told] == ["pause"]


@pytest.mark.parametrize(
    "pauses", [{20, 40}, set(range(20, 24)), set(range(20, 80))], ids=["two", "in a row", "for good"]
)
def test_two_pauses_and_a_step_that_is_longer_from_now_on_are_none(pauses: set[int]) -> None:
    def change(step: int, work: np.ndarray) -> None:
        if step in pauses:
            work[:, 3] = 4.0

    step_findings, told = played(change)

    assert (list(step_findings), told) == ([], [])


def test_what_costs_less_than_a_hundredth_is_not_worth_a_word():
    def change(step: int, work: np.ndarray) -> None:
        if step % 200 == 100:
            work[:, 3] = 4.0

    step_findings, told = played(change, range(1000))

    assert (list(step_findings), told) == ([], [])


def test_long_sequences_are_no_pauses():
    draw = np.random.default_rng(2)

    def change(_: int, work: np.ndarray) -> None:
        work[:, 1] *= draw.lognormal(0.0, 0.5, RANKS)  # of one phase only: of two it would be the shape of the data

    step_findings, told = played(change, range(200))

    assert [one for one in (*step_findings, *told) if one.kind == "pause"] == []


def test_pauses_go_on_being_counted_while_a_rank_is_slow():
    def change(step: int, work: np.ndarray) -> None:
        every_ten_steps(step, work)
        if 30 <= step < 60:
            work[3, 2] *= 1.8

    step_findings, told = played(change)

    [pause] = step_findings
    assert (pause.kind, pause.times) == ("pause", 7)
    assert pause.cost_s == pytest.approx(28.0, rel=0.1)
    [slow] = [one for one in told if one.is_over]
    assert (slow.kind, slow.place, slow.phase, slow.since, slow.last) == ("slow", "rank 3", "backward", 30, 59)


def test_a_restart_of_the_service_in_between_changes_nothing_of_what_was_found():
    step_findings, _ = played(every_ten_steps, range(50))

    after, told = played(every_ten_steps, range(50, 80), StepFindings(tuple(step_findings)))

    [finding] = after
    assert told == []
    assert (finding.since, finding.phase, finding.cost_s) == (
        15,
        "checkpoint",
        pytest.approx(finding.times * 4.0, rel=0.02),
    )
    assert finding.times >= 6  # one may fall into the steps in which it learns again what is usual
