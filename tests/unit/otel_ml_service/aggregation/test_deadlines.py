"""A service looks at a run when something arrives, and at `next_deadline()`: never in vain, and that is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.strategies import Rank, Service

Scenario = Callable[[Service, Sequence[Rank]], None]


def nothing_is_missing(service: Service, ranks: Sequence[Rank]) -> None:
    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks])


def a_rank_does_not_finish(service: Service, ranks: Sequence[Rank]) -> None:
    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks[:2]], ranks[2].record(4, {"x": 4.0}))


def all_but_one_go_on(service: Service, ranks: Sequence[Rank]) -> None:
    a_rank_does_not_finish(service, ranks)
    service.take(*[rank.step(5, {"x": 1.0}) for rank in ranks[:2]])


def a_request_is_lost(service: Service, ranks: Sequence[Rank]) -> None:
    ranks[2].record(4, {"x": 7.0})
    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks])


def a_point_comes_after_its_step_has_closed(service: Service, ranks: Sequence[Rank]) -> None:
    nothing_is_missing(service, ranks)
    ranks[1].record(2, {"x": 1.0})
    service.take(ranks[2].record(2, {"x": 7.0}), ranks[1].record(3, {"y": 7.0}))


def values_have_no_step(service: Service, ranks: Sequence[Rank]) -> None:
    alone = Rank(0, role="monitor")  # a process that has no steps
    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks], alone.record(None, {"t": 2.0}))


SCENARIOS = [
    nothing_is_missing, a_rank_does_not_finish, all_but_one_go_on, a_request_is_lost,
    a_point_comes_after_its_step_has_closed, values_have_no_step,
]  # fmt: skip


def begun(scenario: Scenario) -> tuple[Service, Sequence[Rank]]:
    """Return a service, a moment after something happened in a run that it knows, and the ranks."""
    service, ranks = Service(), [Rank(rank, world_size=3) for rank in range(3)]
    for step in range(4):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(1, *ranks)
    scenario(service, ranks)
    return service, ranks


def looked_at_in_time(service: Service, seconds: int, ranks: Sequence[Rank]) -> int:
    """Let time pass, with heartbeats; look at every deadline up to the next of them, and return how many there were."""
    looks = 0
    for _ in range(seconds):
        beat = service.now + 1
        while (deadline := service.engine.next_deadline()) is not None and deadline <= beat:
            service.now = deadline
            service.settle()
            looks += 1
            after = service.engine.next_deadline()
            assert after is None or after > deadline, "it would look again and again"
        service.now = beat - 1
        service.wait(1, *ranks)
    return looks


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_look_at_the_deadline_does_what_is_due_and_the_next_one_is_later(scenario: Scenario) -> None:
    service, ranks = begun(scenario)
    looks = looked_at_in_time(service, 30, ranks)

    every_second, ranks = begun(scenario)
    every_second.wait(30, *ranks)

    assert looks > 0 or scenario is nothing_is_missing
    assert (service.rows(), service.rows(axis="time")) == (every_second.rows(), every_second.rows(axis="time"))
    assert service.engine.next_deadline() == every_second.engine.next_deadline()
