"""What the other ranks lose by a slow one: a shorter step where they wait for it, and nothing where they go on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from otel_ml_exporters.records import Table
from otel_ml_service.cli.time_account import finding_lines
from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.strategies import Rank, Service

RANKS, SINCE, HOUR = 4, 10, 3600.0

Ends = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""(step, when each rank ended the one before, seconds that each worked) → when each ends this one."""


def goes_on(step: int, before: np.ndarray, work: np.ndarray) -> np.ndarray:
    return before + work


def waits(step: int, before: np.ndarray, work: np.ndarray) -> np.ndarray:
    return np.full(len(work), before.max() + work.max())


def waits_in_no_timer(step: int, before: np.ndarray, work: np.ndarray) -> np.ndarray:
    """All begin together, and the last thing that each records is its own work."""
    return np.full(len(work), np.floor(before.max()) + 2.0) + work


def waits_every_seventh(step: int, before: np.ndarray, work: np.ndarray) -> np.ndarray:
    return waits(step, before, work) if step % 7 == 0 else goes_on(step, before, work)


def played(ends: Ends, steps: range = range(40), until: int = 10**9, **jumps: float) -> tuple[StepFindings, Finding]:
    """Return what is found where rank 2 works for 300 ms longer; of `rank_2=3600.0` the clock is set forward then."""
    step_findings, draw, ended, told = StepFindings(), np.random.default_rng(1), np.zeros(RANKS), []
    clocks = np.arange(RANKS) * 1e9
    for step in steps:
        work = draw.lognormal(0.0, 0.02, RANKS)
        work[2] += 0.3 * (SINCE <= step < until)
        ended = ends(step, ended, work)
        if step == SINCE + 10:
            clocks += [jumps.get(f"rank_{rank}", 0.0) for rank in range(RANKS)]
        at = tuple(round(1e9 * float(seconds)) for seconds in ended + clocks)
        timers = StepTimers(tuple(range(RANKS)), ("generate", "score"), np.column_stack((work, work * 0.1)))
        told += step_findings.step(step, timers._replace(ended_ns=at), {})
    return step_findings, next(iter(step_findings), told[-1])


def test_no_step_is_shorter_without_a_rank_that_falls_behind_the_others():
    _, finding = played(goes_on)

    assert (finding.rank, finding.others_wait, finding.saved_s) == (2, False, 0.0)
    assert finding.extra_s == pytest.approx(0.3, abs=0.05)


@pytest.mark.parametrize("ends", [waits, waits_in_no_timer, waits_every_seventh])
def test_a_step_is_shorter_without_a_rank_that_the_others_do_not_leave_behind(ends: Ends):
    _, finding = played(ends)

    assert (finding.rank, finding.others_wait) == (2, True)
    assert finding.saved_s == pytest.approx(0.3, abs=0.08)


def test_where_nobody_knows_when_ranks_ended_they_are_taken_to_wait():
    step_findings = StepFindings()
    for step in range(40):
        work = np.array([1.0, 1.0, 1.3 if step >= SINCE else 1.0, 1.0])
        step_findings.step(step, StepTimers(tuple(range(RANKS)), ("generate",), work[:, None]), {})

    [finding] = step_findings
    assert finding.others_wait


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("by", [HOUR, -HOUR])
@pytest.mark.parametrize(("ends", "wait"), [(waits, True), (goes_on, False)])
def test_a_clock_that_is_set_meanwhile_changes_nothing(ends: Ends, wait: bool, by: float, rank: int):
    _, finding = played(ends, range(60), **{f"rank_{rank}": by})

    assert (finding.rank, finding.others_wait) == (2, wait)


@pytest.mark.parametrize(("ends", "wait"), [(waits, True), (goes_on, False)])
def test_what_is_over_is_told_as_it_was(ends: Ends, wait: bool):
    _, finding = played(ends, range(60), until=30)

    assert (finding.rank, finding.is_over, finding.others_wait) == (2, True, wait)


def generators(service: Service, *, wait: bool, count: int = 3, host: str = "n2") -> list[str]:
    """Let generators work, of which those on a host take 500 ms longer from rollout 20 on; return what is said."""
    hosts = [f"n{rank * 3 // count}" for rank in range(count)]
    ranks = [
        Rank(rank, role="generator", world_size=count, clock=service.now, host=where)
        for rank, where in enumerate(hosts)
    ]
    for step in range(60):
        taken = [1.5 if where == host and step >= 20 else 1.0 for where in hosts]
        for one, seconds in zip(ranks, taken, strict=True):
            one.clock += max(taken) if wait else seconds
            times = {"time/generate": seconds, "time/score": 0.1}
            service.take(one.step(step, times, "sum>max", axis="rollout"))
        service.wait(1)
        if step == 45:
            service.restart()
    service.take(*[rank.bye("finished") for rank in ranks])
    service.wait(700)
    return service.notices


def table_of(service: Service) -> Table:
    return [record for record in service.records if isinstance(record, Table)][-1]


def test_of_generators_that_go_on_it_is_said_that_only_own_steps_are_longer():
    service = Service()

    [said] = [notice for notice in generators(service, wait=False) if "is slow" in notice]

    assert said.startswith(
        "Rank 2 of role 'generator' is slow in 'generate' since rollout 20: 500 ms longer than the usual rank, +50 %; "
        "its own steps take that much longer, and most ranks do not wait for it (critical)."
    )
    [line] = finding_lines(table_of(service))
    assert line == (
        "critical: rank 2 slow in generate, since rollout 20: +500 ms a step of its own, most ranks do not wait for it"
    )
    answer = why(facts_of("run", service.records), Question(role="generator", axis="rollout"))
    assert answer.sentences[2].startswith(
        "Its own steps are 500 ms shorter without that, and most ranks do not wait for it; look at rollout "
    )
    assert "most ranks did not wait for it" in answer.evidence[0].text


@pytest.mark.parametrize(("wait", "saved"), [(True, 0.5), (False, 0.0)])
def test_of_a_host_that_is_slow_the_same_is_said_as_of_its_ranks(wait: bool, saved: float):
    service = Service()

    generators(service, wait=wait, count=9, host="n1")

    [finding] = service.engine.findings
    assert (finding["place"], finding["others_wait"]) == ("host n1", wait)
    assert finding["saved_s"] == pytest.approx(saved)


def test_of_generators_that_wait_for_each_other_the_price_is_said_as_of_trainers():
    service = Service()

    [said] = [notice for notice in generators(service, wait=True) if "is slow" in notice]

    assert "+50 %; without it a step is 500 ms shorter (critical)." in said
    [line] = finding_lines(table_of(service))
    assert line.endswith("+500 ms a step, 500 ms shorter without it")
    answer = why(facts_of("run", service.records), Question(role="generator", axis="rollout"))
    assert answer.sentences[2].startswith("Without it these steps are 500 ms shorter; look at rollout ")
