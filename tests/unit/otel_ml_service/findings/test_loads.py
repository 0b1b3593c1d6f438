"""Who is always given more to do is named with how much, and is not slow; times that follow a metric name it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from otel_ml_exporters.records import Table
from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.strategies import Rank, Service

PHASES = ("forward", "backward", "all_reduce")
Tokens = Callable[[int, np.random.Generator], Sequence[float]]


def played(
    tokens: Tokens, *, slow: Sequence[float] = (), seed: int = 0, steps: int = 120, before: Sequence[Finding] = ()
) -> tuple[list[Finding], list[Finding]]:
    """Return what was told, and what lasts, in steps whose time goes with the tokens of each rank."""
    draw, step_findings = np.random.default_rng(seed), StepFindings(before)
    told: list[Finding] = []
    for step in range(steps):
        given = np.array(tokens(step, draw), dtype=float)
        ranks = len(given)
        factors = np.array(slow) if len(slow) else np.ones(ranks)
        work = given[:, None] * np.array([1e-3, 2e-3]) * factors[:, None] * draw.lognormal(0.0, 0.01, (ranks, 2))
        reached = work.sum(axis=1)
        seconds = np.column_stack((work, 0.01 + reached.max() - reached))
        timers = StepTimers(tuple(range(ranks)), PHASES, seconds, amounts=("tokens",), given=given[:, None])
        told += step_findings.step(step, timers, {})
    return told, list(step_findings)


def always(*tokens: float) -> Tokens:
    return lambda *_: tokens


def test_a_rank_that_always_has_more_tokens_is_named_with_how_many_and_is_not_slow() -> None:
    told, [now] = played(always(100, 100, 140, 100))

    assert [(one.kind, one.place, one.rank, one.amount, one.since) for one in told] == [
        ("load", "rank 2", None, "tokens", 0)
    ]
    assert now.given == pytest.approx(1.4)
    assert now.phase == "forward and backward"
    assert (now.extra_s, now.saved_s) == (pytest.approx(0.12, rel=0.1), pytest.approx(0.12, rel=0.1))
    assert now.cost_s == pytest.approx(120 * 0.12, rel=0.1)


def test_ranks_that_have_as_many_more_are_named_together() -> None:
    told, _ = played(always(100, 140, 100, 100, 139, 100))

    assert [(one.place, one.ranks) for one in told] == [("ranks 1, 4", (1, 4))]


@pytest.mark.parametrize("seed", range(20))
def test_lengths_that_differ_from_step_to_step_are_no_load(seed: int) -> None:
    told, _ = played(lambda _, draw: draw.lognormal(4.6, 0.5, 4).tolist(), seed=seed)

    assert {one.kind for one in told} <= {"shape"}


def test_more_tokens_that_cost_nothing_are_not_told() -> None:
    """Another rank is as late for another reason: with as much for all the step would be as long."""
    told, _ = played(always(100, 100, 140, 100), slow=(1.0, 1.5, 1.0, 1.0))

    assert {(one.kind, one.place) for one in told} == {("slow", "rank 1")}


def test_a_rank_that_is_slow_and_has_more_tokens_is_told_as_both() -> None:
    told, lasting = played(always(100, 100, 140, 100), slow=(1.0, 1.0, 2.0, 1.0))

    assert {(one.kind, one.place) for one in told if one.kind != "load"} == {("slow", "rank 2")}
    load = next(one for one in lasting if one.kind == "load")
    assert load.saved_s == pytest.approx(0.12, rel=0.15)


def test_a_load_is_over_when_all_have_as_much() -> None:
    told, lasting = played(lambda step, _: (100, 100, 140 if step < 60 else 100, 100))

    assert [(one.place, one.is_over) for one in told] == [("rank 2", False), ("rank 2", True)]
    assert 60 <= told[-1].last <= 75
    assert lasting == []


def test_a_load_goes_on_over_a_restart_of_the_service() -> None:
    _, before = played(always(100, 100, 140, 100), steps=60)

    told, [now] = played(always(100, 100, 140, 100), before=[replace(before[0], last=59)], steps=20)

    assert told == []
    assert (now.place, now.since, now.given) == ("rank 2", 0, pytest.approx(1.4))


def test_times_that_follow_the_tokens_of_each_rank_name_them() -> None:
    told, _ = played(lambda _, draw: draw.uniform(50, 500, 4).tolist())

    assert [(one.kind, one.place, one.amount) for one in told] == [("shape", "nobody", "tokens")]


def test_times_that_follow_something_else_name_no_metric() -> None:
    draw, step_findings = np.random.default_rng(1), StepFindings()
    told: list[Finding] = []
    for step in range(120):
        length, tokens = draw.uniform(50, 500, 4), draw.uniform(50, 500, 4)
        seconds = np.column_stack((length * 1e-3, length * 2e-3)) * draw.lognormal(0.0, 0.01, (4, 2))
        timers = StepTimers((0, 1, 2, 3), PHASES[:2], seconds, amounts=("tokens",), given=tokens[:, None])
        told += step_findings.step(step, timers, {})

    assert [(one.kind, one.amount) for one in told if one.kind == "shape"] == [("shape", "")]


def run_with(tokens: Callable[[int, int], float]) -> Service:
    service, ranks = Service(), [Rank(rank, world_size=4) for rank in range(4)]
    for step in range(60):
        given = [tokens(rank, step) for rank in range(4)]
        for rank, count in zip(ranks, given, strict=True):
            times = {"time/forward": count * 3e-3, "time/all_reduce": 0.01 + (max(given) - count) * 3e-3}
            service.take(rank.record(step, times, "sum>max"), rank.step(step, {"tokens": count}))
        service.wait(1, *ranks)
    service.take(*[rank.bye() for rank in ranks])
    return service


def test_a_run_and_otel_ml_why_say_who_has_more_tokens_and_that_nobody_is_slow() -> None:
    service = run_with(lambda rank, _: 140.0 if rank == 2 else 100.0)

    [said] = [notice for notice in service.notices if "tokens" in notice]
    assert said.startswith(
        "Rank 2 of role 'trainer' has 1.4 × the tokens of the other ranks since step 0, and is not slow"
    )
    assert [notice for notice in service.notices if "is slow" in notice] == []
    [row] = [record for record in service.records if isinstance(record, Table)][-1].rows
    assert row[1:3] == ("load", None)
    answer = why(facts_of("run", service.records), Question())
    assert answer.verdict == "caused"
    assert "rank 2 had 1.4 × the tokens of the other ranks" in answer.sentences[1]
    assert "nobody was slow for what it was given" in answer.sentences[1]
    assert answer.sentences[2].startswith("With as much for all ranks these steps are 120 ms shorter")
