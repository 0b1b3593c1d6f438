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


Late = Callable[[int], float]
"""Seconds that one rank takes more at the end of a step, for which the others wait in the next one."""


def played_with_late(
    late: Late,
    *,
    rank: int = 3,
    ranks: int = 4,
    wait: str = "all_reduce",
    done_in: str = "untimed",
    waited_after: int = 1,
    whole: bool = True,
) -> tuple[StepFindings, list[Finding]]:
    """Play a job whose ranks meet in each step, or in each `waited_after`th one, before one rank does something."""
    step_findings, told, owed = StepFindings(), list[Finding](), 0.0
    for step in range(100):
        table = {"untimed": np.zeros(ranks), "forward": np.full(ranks, 0.02 + 1e-4 * (step % 3))}
        waits = np.full(ranks, 0.004)
        if (step + 1) % waited_after == 0:
            waits[np.arange(ranks) != rank] += owed
            owed = 0.0
        table[wait] = waits
        table.setdefault(done_in, np.zeros(ranks))[rank] += late(step)
        owed += late(step)
        if whole:
            table["step"] = sum(table.values())
        else:
            del table["untimed"]
        timers = StepTimers(tuple(range(ranks)), tuple(table), np.column_stack(list(table.values())))
        told += step_findings.step(step, timers, {})
    return step_findings, told


def each_tenth(step: int) -> float:
    return 0.25 if step % 10 == 9 else 0.0


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"done_in": "checkpoint"},
        {"done_in": "checkpoint", "whole": False},
        {"wait": "exchange"},
        {"ranks": 2, "rank": 0},
        {"waited_after": 4},
    ],
    ids=["in no timer", "in a timer", "steps are not timed", "a wait by another name", "two ranks", "they meet later"],
)
def test_that_the_others_wait_in_the_next_step_is_no_pause_of_its_own(how: dict[str, object]) -> None:
    step_findings, told = played_with_late(each_tenth, **how)  # type: ignore[arg-type]

    [finding] = step_findings
    place = "nobody" if how.get("ranks") == 2 else "rank 3"  # of two ranks chance picks the same one six times in a row
    assert (finding.kind, finding.place, finding.phase) == ("pause", place, how.get("done_in", "untimed"))
    assert (finding.since, finding.every) == (9, 10)
    assert {one.subject for one in told} == {finding.subject}


def test_a_collective_that_is_long_for_all_after_a_rank_paused_is_still_a_pause() -> None:
    step_findings = StepFindings()
    for step in range(100):
        alone = np.where(np.arange(4) == 3, 0.25 if step % 10 == 4 else 0.0, 0.0)
        forward = np.full(4, 0.02 + 1e-4 * (step % 3))
        waits = np.where((np.arange(4) != 3) & (step % 10 == 5), 0.25, 0.0) + (0.3 if step % 10 == 7 else 0.004)
        table = np.column_stack((alone, alone + forward + waits, forward, waits))
        step_findings.step(step, StepTimers(tuple(range(4)), ("untimed", "step", "forward", "all_reduce"), table), {})

    found = {(one.place, one.phase): (one.since, one.every) for one in step_findings}
    assert found == {("rank 3", "untimed"): (14, 10), ("nobody", "all_reduce"): (17, 10)}


def test_ranks_that_take_turns_are_not_taken_for_waiting() -> None:
    """Of two ranks one after the other collects garbage: both cost, and neither waits for the other."""

    def change(step: int, work: np.ndarray) -> None:
        if step > 10 and step % 6 in {0, 1}:
            work[step % 6, 3] = 4.0

    step_findings, _ = played(change)

    [finding] = step_findings
    assert (finding.place, finding.phase, finding.times) == ("nobody", "checkpoint", 22)


def test_a_pause_in_the_last_step_counts_when_no_other_step_comes() -> None:
    step_findings, _ = played(every_ten_steps, range(76))  # the last step is 75
    [before] = step_findings

    told = step_findings.take_last()

    [finding] = step_findings
    assert (before.times, finding.times, finding.last) == (6, 7, 75)
    assert finding.cost_s == pytest.approx(7 * 4.0, rel=0.02)
    assert (told, step_findings.take_last()) == ([], [])


def test_what_only_the_last_step_makes_a_finding_is_told_then() -> None:
    step_findings, told = played(every_ten_steps, range(36))  # steps 15, 25 and 35
    assert (list(step_findings), told) == ([], [])

    [finding] = step_findings.take_last()

    assert [finding] == list(step_findings)
    assert (finding.phase, finding.since, finding.times, finding.every) == ("checkpoint", 15, 3, 10)


def test_a_pause_in_the_last_step_of_an_attempt_counts() -> None:
    step_findings, _ = played(every_ten_steps, range(76))

    [finding] = step_findings.finish()

    assert (finding.is_over, finding.times, finding.last) == (True, 7, 75)


def test_last_steps_that_may_be_another_level_are_no_pauses() -> None:
    def change(step: int, work: np.ndarray) -> None:
        if step >= 77:
            work[:, 3] = 4.0

    step_findings, _ = played(change, range(80))

    assert (step_findings.take_last(), list(step_findings)) == ([], [])


def test_how_often_a_job_pauses_is_known_after_a_restart_of_the_service() -> None:
    before, _ = played(every_ten_steps, range(37))

    after, _ = played(every_ten_steps, range(37, 48), StepFindings(tuple(before)))

    assert [(one.times, one.every) for one in before] == [(3, 10)]
    assert [(one.times, one.every) for one in after] == [(4, 10)]
