"""Who begins while others are at work warms up alone, and is not slow for that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from tests.strategies import Rank, Service

JOINED = 20


def found(forward: Callable[[int, int], float], processes: Callable[[int], Sequence[str]]) -> list[Finding]:
    """Return what is found in 100 steps of ranks that meet in `all_reduce`, with some 1 % of noise."""
    draw, step_findings = np.random.default_rng(3), StepFindings()
    told: list[Finding] = []
    for step in range(100):
        names = processes(step)
        work = np.array([forward(rank, step) for rank in range(len(names))]) * draw.lognormal(0.0, 0.01, len(names))
        seconds = np.column_stack((work, 0.01 + work.max() - work))
        timers = StepTimers(tuple(range(len(names))), ("forward", "all_reduce"), seconds, processes=tuple(names))
        told += step_findings.step(step, timers, {})
    return told


def late_joiner(step: int) -> Sequence[str]:
    return ["a", "b", "c", "d"][: 3 if step < JOINED else 4]


def restarted_alone(step: int) -> Sequence[str]:
    return ["a", "b", "c", "d" if step < JOINED else "e"]


def warms_up(rank: int, step: int) -> float:
    return 1.4 if rank == 3 and JOINED <= step < JOINED + 8 else 0.3


def test_the_first_steps_of_a_rank_that_joins_late_are_nobodys_fault() -> None:
    assert found(warms_up, late_joiner) == []


def test_the_first_steps_of_a_rank_that_is_restarted_alone_are_nobodys_fault() -> None:
    assert found(warms_up, restarted_alone) == []


def test_a_rank_that_joins_late_and_stays_slow_is_found() -> None:
    for processes in (late_joiner, restarted_alone):
        told = found(lambda rank, step: 0.6 if rank == 3 and step >= JOINED else 0.3, processes)

        assert [(one.place, one.phase, one.is_over) for one in told] == [("rank 3", "forward", False)]
        assert JOINED < told[0].last <= JOINED + 24


def test_a_rank_that_is_slow_from_the_first_step_on_is_found_as_before() -> None:
    told = found(lambda rank, _: 0.6 if rank == 3 else 0.3, lambda _: "abcd")

    assert [(one.place, one.since) for one in told] == [("rank 3", 0)]


def test_a_rank_that_was_slow_before_its_restart_is_over_once_it_is_quick() -> None:
    told = found(lambda rank, step: 0.6 if rank == 3 and step < JOINED else 0.3, restarted_alone)

    assert [(one.place, one.last) for one in told if one.is_over] == [("rank 3", JOINED - 1)]
    assert {one.place for one in told} == {"rank 3"}


def test_a_rank_that_comes_back_alone_warms_up_in_a_run() -> None:
    service, ranks = Service(), [Rank(rank, world_size=3) for rank in range(3)]
    for step in range(50):
        if step == JOINED:
            ranks[2] = Rank(2, world_size=3, instance="trainer-2-again", clock=service.now)
        forward = [0.3, 0.3, 1.4 if JOINED <= step < JOINED + 8 else 0.3]
        sent = [one.step(step, {"time/forward": s}, "sum>max") for one, s in zip(ranks, forward, strict=True)]
        service.take(*sent)
        service.wait(1, *ranks)

    assert [notice for notice in service.notices if "is slow" in notice] == []


def test_a_rank_that_hangs_in_a_run_that_records_tokens_is_named() -> None:
    service, ranks = Service(), [Rank(rank, world_size=3) for rank in range(3)]
    for step in range(20):
        sent = [
            message
            for one in ranks
            if step < 19 or one is not ranks[2]
            for message in (*one.record(step, {"time/forward": 1.0}, "sum>max"), *one.record(step, {"tokens": 100.0}))
        ]
        left = [one.done(step) for one in ranks] if step < 19 else [ranks[2].record(step, {"tokens": 100.0})]
        service.take(sent, *left)
        service.wait(1, *ranks)
    service.wait(30, *ranks)

    assert [notice for notice in service.notices if "rank 2 has not finished 'forward'" in notice] != []
