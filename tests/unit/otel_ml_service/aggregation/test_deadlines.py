"""A service looks at a run when something arrives, and at `next_deadline()`: never in vain, and that is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from otel_ml_exporters.records import RunStatus, StepRecord
from otel_ml_service.aggregation.settings import EngineSettings
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


def a_rank_comes_back(service: Service, ranks: Sequence[Rank]) -> None:
    nothing_is_missing(service, ranks)
    service.take(Rank(2, world_size=3, instance="again", clock=service.now).step(3, {"x": 8.0}))


def the_job_is_started_again(service: Service, ranks: Sequence[Rank]) -> None:
    nothing_is_missing(service, ranks)
    service.now += 0.5
    again = [Rank(rank, world_size=3, instance=f"again-{rank}", clock=service.now) for rank in range(3)]
    service.take(*[rank.step(2, {"x": 8.0}) for rank in again])


SCENARIOS = [
    nothing_is_missing, a_rank_does_not_finish, all_but_one_go_on, a_request_is_lost,
    a_point_comes_after_its_step_has_closed, values_have_no_step, a_rank_comes_back, the_job_is_started_again,
]  # fmt: skip


def begun(scenario: Scenario, settings: EngineSettings | None = None) -> tuple[Service, Sequence[Rank]]:
    """Return a service, a moment after something happened in a run that it knows, and the ranks."""
    service, ranks = Service(settings), [Rank(rank, world_size=3) for rank in range(3)]
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


EVERY_S = 0.1

LOOKS = 3
"""What one look decides a later one may go on with: an attempt begins, its step closes, and the run ends."""


def decided(
    service: Service, until: float, next_look: Callable[[float], float | None]
) -> list[tuple[float, tuple[object, ...]]]:
    """Look at a service as often as is said, and return what it decides, and when."""
    found: list[tuple[float, tuple[object, ...]]] = []
    while (look := next_look(service.now)) is not None and look <= until:
        known, service.now = len(service.records), look
        service.settle()
        told = [record for record in service.records[known:] if isinstance(record, (StepRecord, RunStatus))]
        found += [(look, (one.values, one.attempt) if isinstance(one, StepRecord) else (one.status,)) for one in told]
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_is_decided_though_nobody_is_heard_is_decided_at_the_deadlines(scenario: Scenario) -> None:
    """Looks in between decide nothing else, and nothing sooner."""
    settings = EngineSettings(quiet_s=60.0, end_silence_s=80.0)  # the clock in which steps wait goes on
    service, _ = begun(scenario, settings)
    until = service.now + 100.0
    at_deadlines = decided(service, until, lambda now: service.engine.next_deadline())
    often, _ = begun(scenario, settings)
    all_along = decided(often, until, lambda now: now + EVERY_S)

    assert [told for _, told in at_deadlines] == [told for _, told in all_along]
    behind_s = [at - soonest for (soonest, _), (at, _) in zip(at_deadlines, all_along, strict=True)]
    assert all(-1e-6 < behind < LOOKS * EVERY_S for behind in behind_s)
