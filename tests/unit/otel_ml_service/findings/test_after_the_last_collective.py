"""Who is slow after the last collective of a step comes late to the next one; who leaves one early waits elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from tests.unit.otel_ml_service.findings.ranks_that_meet import RanksThatMeet

STEPS = 80

SEEDS = range(8)


def found_in(job: RanksThatMeet, step: Callable[[int], None], findings: StepFindings | None = None) -> list[Finding]:
    """Return all that was found in the steps of a job, what ended and what goes on."""
    findings = findings or StepFindings()
    over = []
    for number in range(STEPS):
        step(number)
        over += [one for one in findings.step(number, job.step(), {}) if one.is_over]
    return [*over, *findings]


def slow_in_log(job: RanksThatMeet, rank: int, longer_s: float, first: int = 10) -> Callable[[int], None]:
    def step(number: int) -> None:
        job.work("forward", 0.1)
        job.work("backward", 0.2)
        job.meet("all_reduce")
        job.work("log", np.where((np.arange(len(job.now)) == rank) & (number >= first), longer_s, 0.002))

    return step


@pytest.mark.parametrize("ranks", [3, 4, 16, 64])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_that_takes_long_after_the_last_collective_is_found_with_what_that_costs(seed: int, ranks: int) -> None:
    job = RanksThatMeet(seed, ranks)
    [found] = found_in(job, slow_in_log(job, seed % ranks, 0.08))

    assert (found.kind, found.place, found.phase) == ("slow", f"rank {seed % ranks}", "log")
    assert abs(found.since - 10) <= 2
    assert found.extra_s == pytest.approx(0.078, rel=0.1)
    assert found.saved_s == pytest.approx(0.078, rel=0.25)  # without it the next one is waited for, by chance


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_found_still_after_a_restart_of_the_service(seed: int) -> None:
    job, before = RanksThatMeet(seed, 4), StepFindings()
    step = slow_in_log(job, 2, 0.08)
    found_in(job, step, before)

    findings = StepFindings(list(before))
    for number in range(STEPS, 2 * STEPS):
        step(number)
        findings.step(number, job.step(), {})

    assert [(one.rank, one.phase, one.is_over) for one in findings] == [(2, "log", False)]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_of_two_is_found_where_one_is_slow_before_the_collective_and_one_after_it(seed: int) -> None:
    job = RanksThatMeet(seed, 8)

    def step(number: int) -> None:
        job.work("forward", np.where(np.arange(8) == 1, 0.15, 0.1))
        job.meet("all_reduce")
        job.work("optimizer", np.where(np.arange(8) == 6, 0.09, 0.03))

    assert {(one.place, one.phase) for one in found_in(job, step)} == {("rank 1", "forward"), ("rank 6", "optimizer")}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("since", [0, 40])
def test_who_leaves_a_collective_first_and_waits_in_a_timer_of_work_is_not_slow(seed: int, since: int) -> None:
    ranks = (4, 8, 16)[seed % 3]
    job = RanksThatMeet(seed, ranks)

    def step(number: int) -> None:
        job.work("forward", 0.1)
        racks = np.where(np.arange(ranks) < ranks - ranks // 4, 0.05, 0.0) * (number >= since)
        job.meet("all_reduce", cost=0.005 + racks + job.draw.exponential(0.0003, ranks))
        job.meet_inside("backward", 0.2)
        job.work("log", 0.002 + (job.draw.random(ranks) < 0.1) * job.draw.uniform(0.0, 0.08, ranks))

    assert [one for one in found_in(job, step) if one.kind == "slow"] == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_group_that_waits_less_than_the_others_in_its_collective_is_not_slow_where_all_wait(
    seed: int, size: int
) -> None:
    ranks = 4 * size
    groups = list(np.arange(ranks).reshape(4, size))
    job = RanksThatMeet(seed, ranks)

    def step(number: int) -> None:
        job.work("forward", 0.1)
        job.meet("all_reduce", groups, cost=np.repeat([0.05, 0.06, 0.05, 0.005], size))
        job.meet_inside("backward", 0.1)

    assert found_in(job, step) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_who_collects_after_the_collective_what_a_slow_rank_writes_is_not_slow(seed: int) -> None:
    job = RanksThatMeet(seed, 8, scatter=0.001)

    def step(number: int) -> None:
        job.work("forward", 0.1)
        job.meet("all_reduce")
        job.work("write", np.where(np.arange(8) == 5, 0.08, 0.005))
        job.until("log", np.where(np.arange(8) == 0, job.now.max(), job.now) + 0.002)

    assert {(one.place, one.phase) for one in found_in(job, step)} <= {("rank 5", "write")}


@pytest.mark.parametrize("seed", SEEDS)
def test_who_stands_still_after_the_collective_now_and_then_is_not_slow_and_nobody_else_is(seed: int) -> None:
    job = RanksThatMeet(seed, 4)

    def step(number: int) -> None:
        job.work("forward", 0.05)
        job.meet("all_reduce")
        job.work("checkpoint", np.where((np.arange(4) == 0) & (number % 20 == 19), 0.06, 0.0001))

    assert found_in(job, step) == []
