"""When a run began: with the earliest of what its first request brought, whatever comes later."""

from __future__ import annotations

from tests.strategies import START, Rank, Service


def test_a_run_began_when_the_first_of_what_its_first_request_holds_was_recorded() -> None:
    service, early, later = Service(), Rank(0, clock=START - 7.0), Rank(1, clock=START - 3.0)

    service.take(later.step(0, {"loss": 1.0}), early.step(0, {"loss": 1.0}))

    assert service.engine.facts.started_at == START - 7.0


def test_what_was_recorded_earlier_and_comes_later_does_not_change_when_a_run_began() -> None:
    service, first, slow = Service(), Rank(0, clock=START - 3.0), Rank(1, clock=START - 500.0)
    service.take(first.step(0, {"loss": 1.0}))

    service.wait(1.0)
    service.take(slow.step(0, {"loss": 1.0}))

    assert service.engine.facts.started_at == START - 3.0


def test_a_clock_that_is_ahead_does_not_make_a_run_begin_later_than_it_was_heard() -> None:
    service = Service()

    service.take(Rank(0, clock=START + 3600.0).step(0, {"loss": 1.0}))

    assert service.engine.facts.started_at == START
