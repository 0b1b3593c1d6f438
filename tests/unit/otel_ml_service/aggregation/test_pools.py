"""A pool of actors of which some are replaced is not a restart of the job (docs/protocol.md §5.7, ADR 0011)."""

from __future__ import annotations

import pytest

from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import Rank, Service
from tests.unit.otel_ml_service.aggregation.lives import life, live_on


def test_a_rank_that_comes_back_alone_does_not_fence_those_that_go_on() -> None:
    """A pool of actors: one dies, is replaced, and its first records arrive when the others are past that step."""
    service, actors = Service(), life("a", world=2)
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in actors])
    service.wait(2, actors[0])
    for step in range(10, 16):
        service.take(actors[0].step(step, {"x": 1.0}, "sum"))
    service.wait(20, actors[0])  # rank 1 is given up
    back = Rank(1, world_size=2, instance="b-1", clock=service.now)

    service.take(back.step(9, {"x": 5.0}, "sum"))  # once more
    for step in range(10, 20):
        service.now += 0.5
        actors[0].clock = back.clock = service.now
        live = actors[0].step(step, {"x": 1.0}, "sum") if step >= 16 else actors[0].inside(15)
        service.take(back.step(step, {"x": 5.0}, "sum"), live)
    service.wait(20, actors[0], back)

    rows = service.rows()
    assert [rows[step]["x"] for step in range(8, 20)] == [2.0] + [6.0] * 11
    assert {record.attempt for record in service.steps()} == {0}


@pytest.mark.parametrize("after_s", [1, 5])
def test_a_step_of_an_axis_that_only_a_replaced_rank_was_on_does_not_wait_for_it(after_s: int) -> None:
    service, actors = Service(), life("a", world=2)
    service.take(*[rank.step(0, {"x": 1.0}) for rank in actors])
    service.take(actors[1].record(0, {"accuracy": 0.5}, axis="eval"))
    service.wait(after_s, actors[0])
    back = Rank(1, world_size=2, instance="b-1", clock=service.now)
    service.take(back.step(1, {"x": 1.0}), actors[0].step(1, {"x": 1.0}))

    service.wait(4, actors[0], back)

    assert service.rows(axis="eval") == {0: {"eval/accuracy": 0.5}}


def a_pool_at_work(service: Service) -> list[Rank]:
    """Return two actors on a machine that have done ten steps."""
    actors = life("a", world=2, boot="b")
    for step in range(10):
        service.now += 0.5
        for rank in actors:
            rank.clock = service.now
        service.take(*[[*rank.step(step, {"x": 1.0}, "sum"), *rank.inside(step)] for rank in actors])
    return actors


def test_ranks_that_are_heard_late_after_an_outage_are_not_taken_for_dead() -> None:
    """A pool of actors: one dies in an outage; its successor, which has just begun, is the first to be heard after it.

    The others wait up to five seconds with their next request, as after every outage
    (`otel_ml/_internal/transport/send.py`).
    """
    service = Service()
    actors = a_pool_at_work(service)
    back = Rank(0, world_size=2, instance="b-0", clock=service.now + 1, boot="b", born=service.now + 1)
    unheard = []
    for step in range(10, 20):  # nobody is heard for five seconds
        service.now += 0.5
        actors[1].clock = service.now
        unheard += [*actors[1].step(step, {"x": 1.0}, "sum"), *actors[1].inside(step)]

    for step in range(9, 19):
        service.now += 0.5
        back.clock = service.now
        service.take([*back.step(step, {"x": 5.0}, "sum"), *back.inside(step)])
    service.take(unheard)
    live_on(service, [back, actors[1]], 20)
    service.wait(20, back, actors[1])

    assert {record.attempt for record in service.steps()} == {0}
    assert service.engine.status.counts.superseded <= 1  # what it had done of step 9 before it died
    rows = service.rows()
    assert [rows[step]["x"] for step in range(10, 19)] == [6.0] * 9


@pytest.mark.parametrize("is_told", [False, True])
@pytest.mark.parametrize("ticks", [8, 4, 3])
def test_a_pool_that_is_replaced_one_by_one_in_an_outage_is_no_restart(ticks: int, is_told: bool) -> None:
    """Each rank is killed, or told to end and says goodbye, while another goes on; all is heard after the outage."""
    service = Service()
    actors = a_pool_at_work(service)
    began = service.now
    # Rank 0 is killed at once and replaced after half a second; rank 1 goes on for `ticks`, and is replaced one later.
    first = Rank(0, world_size=2, instance="b-0", clock=began, boot="b", born=began + 0.5)
    second = Rank(1, world_size=2, instance="b-1", clock=began, boot="b", born=began + (ticks + 1) / 2)
    unheard: dict[Rank, list[object]] = {actors[1]: [], first: [], second: []}
    for tick in range(12):
        service.now += 0.5
        # Who lives from tick to tick, and the step of its first one.
        for rank, begins, ends, step in (
            (actors[1], 0, ticks, 10),
            (first, 1, 12, 9),
            (second, ticks + 1, 12, ticks + 11),
        ):
            if begins <= tick < ends:
                rank.clock = service.now
                now_at = step + tick - begins
                unheard[rank] += [*rank.step(now_at, {"x": 5.0}, "sum"), *rank.inside(now_at)]
    if is_told:
        unheard[actors[1]] += actors[1].bye("killed")

    service.take(unheard[first])
    service.take(unheard[second])
    service.take(unheard[actors[1]])  # its spool, sent by its successor
    live_on(service, [first, second], 22)
    service.wait(20, first, second)

    assert {record.attempt for record in service.steps()} == {0}
    rows = service.rows()
    assert [rows[step]["x"] for step in range(10, 10 + ticks)] == [10.0] * ticks


def test_a_pool_of_which_one_went_on_and_is_dead_when_a_successor_is_heard_is_no_restart() -> None:
    """Rank 0 is replaced at once, rank 1 a little later, rank 2 not at all; rank 0's successor is heard last."""
    service, actors = Service(), life("a", world=3, boot="b")
    for step in range(10):
        service.now += 0.5
        for rank in actors:
            rank.clock = service.now
        service.take(*[[*rank.step(step, {"x": 1.0}, "sum"), *rank.inside(step)] for rank in actors])
    began = service.now
    first = Rank(0, world_size=3, instance="b-0", clock=began, boot="b", born=began + 0.5)
    second = Rank(1, world_size=3, instance="b-1", clock=began, boot="b", born=began + 2)
    unheard: dict[Rank, list[object]] = {actors[1]: [], actors[2]: [], first: [], second: []}
    for tick in range(20):
        service.now += 0.5
        for rank, begins, ends in ((actors[1], 0, 3), (actors[2], 0, 12), (first, 1, 20), (second, 4, 20)):
            if begins <= tick < ends:
                rank.clock = service.now
                unheard[rank] += [*rank.step(10 + tick, {"x": 5.0}, "sum"), *rank.inside(10 + tick)]

    for rank in (actors[1], actors[2], second):
        service.take(unheard[rank])
    for step in range(30, 200):
        service.now += 0.5
        second.clock = service.now
        service.take([*second.step(step, {"x": 5.0}, "sum"), *second.inside(step)])
    service.take(unheard[first])
    live_on(service, [first, second], 200)
    service.wait(20, first, second)

    assert {record.attempt for record in service.steps()} == {0}
    assert service.engine.status.counts.superseded == 0


def replaced_in_an_outage(service: Service) -> tuple[list[Rank], Rank, list[object]]:
    """Two of three ranks are told to end, and replaced, while nobody is heard for 25 seconds.

    Returns:
        the successors, the rank that lives on, and what it recorded meanwhile.
    """
    actors = life("a", world=3, boot="b")
    for step in range(10):
        service.now += 0.5
        for rank in actors:
            rank.clock = service.now
        service.take(*[[*rank.step(step, {"x": 1.0}, "sum"), *rank.inside(step)] for rank in actors])
    goodbyes = [rank.bye("killed") for rank in actors[:2]]
    began = service.now + 20
    successors = [
        Rank(rank, world_size=3, instance=f"b-{rank}", clock=began, boot="b", born=began) for rank in range(2)
    ]
    unheard: list[object] = []
    for step in range(10, 60):
        service.now += 0.5
        actors[2].clock = service.now
        unheard += [*actors[2].step(step, {"x": 1.0}, "sum"), *actors[2].inside(step)]
    service.take(*goodbyes)
    return successors, actors[2], unheard


@pytest.mark.parametrize("restarts_after_s", [None, 6])
def test_ranks_told_to_end_in_an_outage_are_replaced_while_a_third_is_not_heard_yet(
    restarts_after_s: int | None,
) -> None:
    """Who lived on waits as long with its next request after a restart of the service as after any other outage."""
    service = Service()
    successors, lives, unheard = replaced_in_an_outage(service)

    for tick in range(8 if restarts_after_s is None else 12):
        service.now += 1.0
        if tick == restarts_after_s:
            service.restart()
        for rank in successors:
            rank.clock = service.now
        service.take(*[[*rank.step(9 + tick, {"x": 5.0}, "sum"), *rank.inside(9 + tick)] for rank in successors])
    service.take(unheard)
    live_on(service, [*successors, lives], 60)
    service.wait(20, *successors, lives)

    assert {record.attempt for record in service.steps()} == {0}
    assert service.engine.status.counts.superseded <= 2
    rows = service.rows()
    assert [rows[step]["x"] for step in range(10, 17)] == [11.0] * 7


def came_back_far_behind(settings: EngineSettings) -> Service:
    """Return a service of which one of two actors comes back alone and redoes ten of forty steps."""
    service, actors = Service(settings), life("a", boot="b")
    for step in range(40):
        service.now += 0.5
        for rank in actors:
            rank.clock = service.now
        service.take(*[[*rank.step(step, {"x": 1.0}, "sum"), *rank.inside(step)] for rank in actors])
    back = Rank(1, world_size=2, instance="b-1", clock=service.now, boot="b", born=service.now + 0.2)
    for step in range(4, 14):
        service.now += 0.5
        back.clock = actors[0].clock = service.now
        service.take([*back.step(step, {"x": 5.0}, "sum"), *back.inside(step)], actors[0].inside(39))
    service.wait(20, back, actors[0])
    return service


def test_a_rank_that_comes_back_far_behind_alone_replaces_what_its_predecessor_had_recorded() -> None:
    service = came_back_far_behind(EngineSettings(retained_steps=8))

    assert {record.attempt for record in service.steps()} == {0}
    assert service.engine.status.counts.too_late == 0
    rows = service.rows()
    assert [rows[step]["x"] for step in range(40)] == [2.0] * 4 + [6.0] * 10 + [2.0] * 26


def test_a_rank_that_comes_back_far_behind_alone_is_too_late_and_changes_nothing() -> None:
    """Nothing is kept of those steps any more: what it redoes there is counted, and no row is replaced by its share."""
    service = came_back_far_behind(EngineSettings(retained_steps=8, closed_bytes=0))

    assert {record.attempt for record in service.steps()} == {0}
    assert service.engine.status.counts.too_late == 10
    rows = service.rows()
    assert [rows[step]["x"] for step in range(40)] == [2.0] * 40
