"""Texts, tables, images and files that a writer sent and that never arrived: counted, and said once."""

from __future__ import annotations

import pytest

from tests.strategies import Rank, Service


def lost(service: Service) -> dict[str, int]:
    return dict(service.engine.status.lost)


def test_a_lost_event_is_no_lost_value_and_is_counted() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.event("ml.text", "kept"))
    rank.event("ml.text", "lost")
    service.take(rank.step(0, {"x": 1.0}), rank.bye())
    service.wait(400)

    assert lost(service) == {"events_never_arrived": 1}
    [notice] = [notice for notice in service.notices if "(otel-ml explain events-never-arrived)" in notice]
    assert "1 texts, tables, images, files or parameters of rank 0 of trainer never arrived" in notice


@pytest.mark.parametrize("reason", ["events_spool_full", "events_spool_unreadable", "events_and_spans: HTTP 400"])
def test_an_event_that_its_writer_knows_to_be_lost_counts_once(reason: str) -> None:
    service, rank = Service(), Rank(0)
    rank.event("ml.params", {"lr": 0.1})  # never arrives
    service.take(rank.step(0, {"x": 1.0}), rank.bye(dropped={reason: 1}))
    service.wait(400)

    assert lost(service) == {reason: 1}
    assert not any("never arrived" in notice for notice in service.notices)


def test_events_that_a_hop_drops_are_said_while_the_run_goes_on_and_once_for_all_ranks() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    for rank in ranks:
        rank.event("ml.text", "lost")
        service.take(rank.step(0, {"x": 1.0}), rank.says_totals(0))
    service.wait(11, *ranks)

    assert lost(service) == {"events_never_arrived": 2}
    assert len([notice for notice in service.notices if "(otel-ml explain events-never-arrived)" in notice]) == 1


def test_an_event_that_arrives_after_the_totals_that_count_it_is_not_called_missing() -> None:
    service, rank = Service(), Rank(0)
    overtaken = rank.event("ml.text", "late")
    service.take(rank.step(0, {"x": 1.0}), rank.says_totals(0), overtaken)

    assert not service.notices
