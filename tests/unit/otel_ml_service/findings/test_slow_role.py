"""A role that is slow as a whole is named, with its role for a place; a role that waits for it never is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_ml_exporters.records import Record, RunStatus, Table
from otel_ml_service.cli.time_account import finding_lines
from otel_ml_service.report.answer import answer
from otel_ml_service.report.contents import contents
from otel_ml_service.report.steps_told import Told
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.quality.parts import by_kind_of_roles
from tests.quality.roles import KINDS_OF_ROLES
from tests.strategies import Rank, Service

SLOW_FROM = 60
Times = Callable[[int], dict[str, float]]


@pytest.mark.parametrize("turn", range(4))
def test_in_jobs_of_two_roles_the_slow_one_is_named_and_nobody_wrongly(turn: int) -> None:
    scores = by_kind_of_roles(range(turn * len(KINDS_OF_ROLES), (turn + 1) * len(KINDS_OF_ROLES)))

    assert scores["all"].culprits == 2
    assert scores["all"].first == scores["all"].exact == scores["all"].culprits
    assert scores["all"].wrong == 0, {kind: one.wrong for kind, one in scores.items()}


def generate(step: int) -> dict[str, float]:
    return {"time/generate": (1.5 if step >= SLOW_FROM else 1.0) + 0.01 * (step % 3), "time/sync_weights": 0.05}


def train(step: int) -> dict[str, float]:
    waits = 0.5 if step >= SLOW_FROM else 0.05
    return {"time/forward": 0.3 + 0.002 * (step % 3), "time/rl/loop/idle": waits}


def played(
    service: Service, *, generators: Times = generate, trainers: Times = train, trainer_count: int = 2,
    steps: range = range(100), restart_at: int | None = None,
) -> list[Rank]:  # fmt: skip
    """Let two roles work beside each other; return their ranks."""
    generating = [Rank(rank, role="generator", world_size=4, clock=service.now) for rank in range(4)]
    training = [Rank(rank, world_size=trainer_count, clock=service.now) for rank in range(trainer_count)]
    for step in steps:
        for one in generating:
            service.take(one.step(step, generators(step), "sum>max", axis="rollout"))
        for one in training:
            service.take(one.step(step, trainers(step), "sum>max"))
        service.wait(1, *generating, *training)
        if step == restart_at:
            service.restart()
    return [*generating, *training]


def roles_found(service: Service) -> list[str]:
    return [str(one["place"]) for one in service.engine.findings if str(one["place"]).startswith("role ")]


def test_it_is_said_published_and_told_wherever_findings_are() -> None:
    service = Service()
    ranks = played(service)
    service.take(*[rank.bye("finished") for rank in ranks])
    service.wait(700)

    [said] = [notice for notice in service.notices if "is slow" in notice]
    assert said.startswith(
        f"Role 'generator' is slow in 'generate' since rollout {SLOW_FROM}: 500 ms longer than before, +49"
    )
    table = [one for one in service.records if isinstance(one, Table) and one.name.endswith("findings")][-1]
    [line] = finding_lines(table)
    assert line.startswith(f"warning: role generator slow in generate, since rollout {SLOW_FROM}: +500 ms a step")
    records: list[Record] = [*service.records, RunStatus(10**6, service.now, "finished")]
    page = str(answer(contents("run", "pages", records), Told()))
    assert f"Role generator is slow in generate, since rollout {SLOW_FROM}" in page
    told = why(facts_of("run", records), Question(role="generator", axis="rollout"))
    assert told.sentences[1].startswith(f"Caused: role generator was slow in generate, rollouts {SLOW_FROM}-99")


def test_it_outlives_a_restart_of_the_service_and_ends_when_all_are_as_quick_as_before() -> None:
    def for_a_while(step: int) -> dict[str, float]:
        return generate(step if step < 85 else 0)

    service = Service()
    played(service, generators=for_a_while, restart_at=80)

    [over] = [one for one in service.engine.findings if one["where"]]
    assert (over["place"], over["since"], over["last"], over["is_over"]) == ("role generator", SLOW_FROM, 84, True)
    assert over["cost_s"] == pytest.approx(0.5 * 25, rel=0.05)


@pytest.mark.parametrize("trainers", [
    lambda step: {"time/rollout": 1.5 if step >= SLOW_FROM else 1.0},
    lambda step: {"time/forward": 0.3, "time/data": 0.5 if step >= SLOW_FROM else 0.05},
    lambda step: {"loss": 0.5},
], ids=["waits in work", "waits for data", "is not timed"])  # fmt: skip
@pytest.mark.parametrize("trainer_count", [1, 2])
def test_where_another_role_may_be_the_reason_nobody_is_named(trainers: Times, trainer_count: int) -> None:
    service = Service()

    played(service, trainers=trainers, trainer_count=trainer_count)

    assert roles_found(service) == []


def test_in_a_job_of_one_role_its_own_pace_is_no_place() -> None:
    service = Service()
    ranks = [Rank(rank, role="generator", world_size=4, clock=service.now) for rank in range(4)]
    for step in range(100):
        for one in ranks:
            service.take(one.step(step, generate(step), "sum>max", axis="rollout"))
        service.wait(1, *ranks)

    assert roles_found(service) == []
