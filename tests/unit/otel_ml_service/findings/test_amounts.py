"""Who is given more to do takes longer, and is not slow for that; who takes longer for as much is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from otel_ml_service.findings.step_timers import StepTimers
from tests.strategies import Rank, Service

STEPS = 120


def played(seed: int, culprit: int | None = None, by: float = 4.0, first: int = 40) -> Iterator[StepTimers]:
    """Yield steps of generators: how many tokens each makes lasts for long, and what a token takes is alike."""
    draw = np.random.default_rng(seed)
    ranks = int(draw.choice([2, 3, 4, 8]))
    fixed_s, token_s = draw.uniform(0.0, 0.3), draw.uniform(0.5, 2.0) / 300
    scatter, variety = draw.uniform(0.005, 0.1), draw.uniform(0.02, 0.3)
    level = draw.lognormal(0.0, 0.5, ranks)
    turn = int(draw.integers(20, 80))
    for step in range(STEPS):
        if step == turn:  # another policy answers at another length
            level[int(draw.integers(ranks))] *= draw.choice([0.3, 3.0])
        tokens = 300 * level * draw.lognormal(0.0, variety, ranks)
        generate = (fixed_s + token_s * tokens) * draw.lognormal(0.0, scatter, ranks)
        if culprit is not None and step >= first:
            generate[culprit] *= by
        write = 0.01 * draw.lognormal(0.0, scatter, ranks)
        seconds = np.column_stack((generate, write))
        yield StepTimers(
            tuple(range(ranks)), ("generate", "buffer_write"), seconds, amounts=("tokens",), given=tokens[:, None]
        )


def found(steps: Iterator[StepTimers]) -> list[Finding]:
    step_findings = StepFindings()
    every = [one for step, timers in enumerate(steps) for one in step_findings.step(step, timers, {})]
    return [one for one in every if one.kind == "slow"]


def test_nobody_is_slow_who_has_more_tokens_whatever_their_levels_scatter_and_turns() -> None:
    assert {seed: [(one.rank, one.since) for one in found(played(seed))] for seed in range(60)} == {
        seed: [] for seed in range(60)
    }


def test_who_takes_four_times_as_long_for_a_token_is_found_within_ten_steps() -> None:
    """Where its own tokens are not so few that nobody waits for it."""
    late = {}
    for seed in range(25):
        told = [one for one in found(played(seed, culprit=0, by=12.0)) if one.rank == 0]
        if not told or not 38 <= told[0].since <= 45:
            late[seed] = told
    assert late == {}


def test_one_that_is_known_to_be_slow_and_not_heard_does_not_make_the_next_one_slow() -> None:
    step_findings = StepFindings()
    told: list[Finding] = []
    for step in range(60):
        times = [1.0, 1.6, 4.0] if step < 20 else [1.0, 1.6, np.nan]
        ranks = (0, 1, 2) if step < 20 else (0, 1)
        seconds = np.array([[one] for one in times if not np.isnan(one)])
        told += step_findings.step(step, StepTimers(ranks, ("generate",), seconds), {})

    assert {one.rank for one in told} == {2}


def test_one_that_comes_back_as_quick_as_the_others_no_longer_excuses_the_next_one_when_it_leaves_again() -> None:
    step_findings = StepFindings()
    told: list[Finding] = []
    for step in range(140):
        third = {0: [4.0], 1: [], 2: [1.0], 3: []}[min(step // 20, 2) if step < 100 else 3]
        seconds = np.array([[one] for one in (1.0, 1.6, *third)])
        told += step_findings.step(step, StepTimers(tuple(range(len(seconds))), ("generate",), seconds), {})

    assert [(one.rank, one.is_over) for one in told if one.rank == 1][-1] == (1, False)


def test_a_phase_that_does_not_go_with_the_amount_still_accuses() -> None:
    """What a rank has to save does not depend on its tokens: this is learned, and then more tokens excuse nothing."""
    draw, step_findings = np.random.default_rng(0), StepFindings()
    told: list[Finding] = []
    for step in range(200):
        tokens = 300 * np.array([1.0, 2.0, 1.0, 1.0]) * draw.lognormal(0.0, 0.3, 4)
        save = np.array([1.0, 1.5, 1.0, 1.0]) * draw.lognormal(0.0, 0.01, 4)
        given = tokens[:, None]
        told += step_findings.step(
            step, StepTimers((0, 1, 2, 3), ("store",), save[:, None], amounts=("tokens",), given=given), {}
        )

    assert {(one.rank, one.phase) for one in told if one.kind == "slow"} == {(1, "store")}


@pytest.mark.parametrize("name", ["rl/sample/sequence_length", "num_tokens", "batch/samples"])
def test_what_ranks_record_of_their_tokens_is_taken_with_their_times(name: str) -> None:
    service, ranks = Service(), [Rank(rank, world_size=3) for rank in range(3)]
    for step in range(40):
        tokens = [100.0, 300.0, 100.0]
        slow = [1.0, 1.0, 5.0 if step >= 20 else 1.0]
        sent = [
            message
            for one, count, factor in zip(ranks, tokens, slow, strict=True)
            for message in (
                one.record(step, {"time/generate": count * factor / 100}, "sum>max"),
                one.step(step, {name: count}),
            )
        ]
        service.take(*sent)
        service.wait(1, *ranks)

    said = [notice for notice in service.notices if "is slow" in notice]

    assert [notice.split(" of role")[0] for notice in said] == ["Rank 2"]
