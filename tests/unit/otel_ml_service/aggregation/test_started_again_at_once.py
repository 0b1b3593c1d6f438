"""docs/protocol.md §5.7: a job that is started again before anybody knows that the one before has died."""

from __future__ import annotations

import pytest

from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import START, Rank, Service
from tests.unit.otel_ml_service.aggregation.lives import life, live_on


def restarted_at_once(service: Service) -> list[Rank]:
    """Let a job close ten steps, die, and be started again half a second later; return its new ranks."""
    first = life("a")
    for step in range(10):
        service.now += 0.1
        for rank in first:
            rank.clock = service.now
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in first])
    service.now += 0.5
    return life("b", start=service.now)


def test_a_job_that_is_started_again_at_once_opens_the_next_attempt_and_amends_nothing() -> None:
    service = Service()
    second = restarted_at_once(service)

    live_on(service, second, 7)

    assert [(r.attempt, r.step) for r in service.steps()][10:] == [(1, 7), (1, 8), (1, 9)]
    assert [service.rows()[step]["x"] for step in (6, 7, 8, 9)] == [2.0, 4.0, 4.0, 4.0]
    assert service.amendments == 0
    assert service.engine.status.counts.superseded == 0


def test_a_rank_that_began_after_the_last_heartbeat_of_another_is_not_taken_for_one_of_the_next_life() -> None:
    """Heartbeats are taken once a second: a rank that hangs in its first one was last heard before others began."""
    service = Service()
    hangs = Rank(1, world_size=2, instance="a-1", clock=START, boot="b", born=START)
    dies = Rank(0, world_size=2, instance="a-0", clock=START, boot="b", born=START + 0.2)
    service.take(hangs.inside(0))
    for step in range(10):
        service.now += 0.06
        hangs.clock = dies.clock = max(service.now, START + 0.25)
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in (hangs, dies)], dies.inside(step))
    second = life("b", start=service.now + 0.4, boot="b")
    service.now += 0.8
    service.take([*second[1].step(5, {"x": 2.0}, "sum"), *second[1].inside(5)])
    service.now += 0.3
    service.take([*second[0].step(5, {"x": 2.0}, "sum"), *second[0].inside(5)])

    live_on(service, second, 6)
    service.wait(20, *second)

    assert [service.rows()[step]["x"] for step in range(9)] == [2.0] * 5 + [4.0] * 4
    assert [(r.attempt, r.step) for r in service.steps()] == [(0, s) for s in range(10)] + [(1, s) for s in range(5, 9)]
    assert service.amendments == 0


def test_a_service_killed_before_it_knows_who_lives_decides_the_same() -> None:
    service = Service()
    second = restarted_at_once(service)
    service.take(*[rank.step(7, {"x": 2.0}, "sum") for rank in second])

    service.restart()
    live_on(service, second, 8)

    assert [(r.attempt, r.step) for r in service.steps()][10:] == [(1, 7), (1, 8), (1, 9), (1, 10)]
    assert [service.rows()[step]["x"] for step in (7, 8, 9)] == [4.0, 4.0, 4.0]
    assert service.amendments == 0


def test_a_job_that_is_started_again_at_once_and_ends_within_the_second_is_an_attempt_of_its_own() -> None:
    service = Service()
    second = restarted_at_once(service)

    for step in (8, 9):
        service.take(*[rank.step(step, {"x": 2.0}, "sum") for rank in second])
    service.take(*[rank.bye() for rank in second])

    assert [(r.attempt, r.step) for r in service.steps()][10:] == [(1, 8), (1, 9)]
    assert service.amendments == 0


def test_what_a_dead_process_left_in_its_spool_does_not_keep_its_successor_out_of_the_next_attempt() -> None:
    service, first = Service(), life("a")
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in first])
    left = first[1].step(10, {"x": 1.0}, "sum")
    service.wait(5, Rank(0, role="generator"))
    second = life("b", start=service.now)
    service.take(second[0].step(10, {"x": 2.0}, "sum"))
    service.now += 0.5

    service.take(left)  # the service takes its spool in
    service.take(second[1].step(9, {"x": 2.0}, "sum"), second[1].step(10, {"x": 2.0}, "sum"))
    live_on(service, second, 11)

    assert service.rows()[10] == {"x": 4.0}
    assert service.rows()[13] == {"x": 4.0}
    assert service.amendments == 0


@pytest.mark.parametrize("closed_bytes", [0, 2**20])
@pytest.mark.parametrize("gap_s", [1, 5, 12, 21, 40])
def test_a_restart_from_a_checkpoint_far_back_is_an_attempt_however_soon_it_comes(
    gap_s: int, closed_bytes: int
) -> None:
    """Perhaps nothing is kept of the steps that it redoes; until it is decided what it is, its points are."""
    service, first = Service(EngineSettings(retained_steps=8, closed_bytes=closed_bytes)), life("a", boot="b")
    for step in range(60):
        service.now += 0.2
        for rank in first:
            rank.clock = service.now
        service.take(*[[*rank.step(step, {"x": 1.0}, "sum"), *rank.inside(step)] for rank in first])
    service.now += gap_s
    second = life("b", start=service.now, boot="b")
    for step in range(5, 55):
        service.now += 0.2
        for rank in second:
            rank.clock = service.now
        service.take(*[[*rank.step(step, {"x": 2.0}, "sum"), *rank.inside(step)] for rank in second])
    service.wait(20, *second)

    assert service.engine.status.counts.too_late == 0
    redone = [(record.attempt, record.step) for record in service.steps()][60:]
    assert redone == [(1, step) for step in range(5, 55)]
    assert [service.rows()[step]["x"] for step in range(60)] == [2.0] * 5 + [4.0] * 50 + [2.0] * 5


@pytest.mark.parametrize("order", ["one after the other", "at once", "the next life first"])
def test_a_program_that_ends_well_and_begins_again_at_an_earlier_step_keeps_all_that_it_recorded(order: str) -> None:
    """Whether a step had closed by then tells of the network and the machine, not of what was done again."""
    service = Service()
    first = Rank(0, world_size=1, instance="a", clock=START, boot="b", born=START)
    for step in range(8):
        service.now += 0.01
        first.clock = service.now
        service.take(first.step(step, {"x": 1.0}, "sum"))
    left = [first.step(8, {"x": 1.0}, "sum"), first.step(9, {"x": 1.0}, "sum"), first.bye()]
    service.now += 0.5
    second = Rank(0, world_size=1, instance="b", clock=service.now, boot="b", born=service.now)
    begins = [second.step(0, {"y": 1.0}, "sum")]

    if order == "one after the other":
        service.take(*left)
        service.take(*begins)
    elif order == "at once":
        service.take(*left, *begins)
    else:
        service.take(*begins)
        service.now += 0.5
        service.take(*left)
    service.take(second.bye())

    rows = {(row.attempt, row.step): row.values for row in service.steps()}
    assert [rows[0, step]["x"] for step in range(10)] == [1.0] * 10
    assert rows[1, 0]["y"] == 1.0
    assert service.engine.status.counts.superseded == 0
