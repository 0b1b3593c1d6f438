"""Messages that arrive in parts, ranks that hold the same, and what one says of itself later: what counts once."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from otel_ml_service.aggregation.observation import Fragment
from tests.strategies import Rank, Service, split

TOPOLOGY = (("dp", 0, 2),)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_parts_of_a_message_that_overlap_are_put_together_and_each_point_counts_once(order: tuple[int, ...]) -> None:
    """A Collector that sends again has perhaps cut the message elsewhere."""
    service, rank = Service(), Rank(0)
    [whole] = rank.record(0, {"a": 1.0, "b": 2.0, "c": 4.0}, "sum")
    assert isinstance(whole, Fragment)
    parts = [*split(whole, 1), *split(whole, 2)]

    service.take([parts[place] for place in order], rank.done(0), rank.bye())

    assert service.rows() == {0: {"a": 1.0, "b": 2.0, "c": 4.0}}
    counts = service.engine.status.counts
    assert (counts.received, counts.duplicate, counts.closed) == (6, 3, 3)


def test_of_ranks_that_hold_the_same_each_metric_is_that_of_the_lowest_and_of_others_all_count() -> None:
    service = Service()
    ranks = [Rank(0, topology=TOPOLOGY), Rank(1, topology=TOPOLOGY), Rank(2)]

    service.take(
        ranks[2].step(0, {"a": 100.0}, "sum@dp"),
        ranks[1].step(0, {"a": 10.0, "b": 5.0}, "sum@dp"),
        ranks[0].step(0, {"a": 1.0}, "sum@dp"),
        *[rank.bye() for rank in ranks],
    )

    assert service.rows() == {0: {"a": 101.0, "b": 5.0}}


def test_a_dimension_that_no_rank_has_is_said_once() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2, topology=TOPOLOGY) for rank in range(2)]

    for step in range(3):
        service.take(*[rank.step(step, {"a": 1.0, "b": 2.0}, "sum@dpp") for rank in ranks])

    assert service.rows() == {step: {"a": 2.0, "b": 4.0} for step in range(3)}
    (said,) = service.notices
    assert "over='dpp' of metrics of role 'trainer' is a dimension that no rank has" in said
    assert "Known: dp." in said


def test_a_dimension_that_some_ranks_have_or_that_one_rank_alone_asks_for_is_not_said() -> None:
    service = Service()
    ranks = [Rank(0, topology=TOPOLOGY, world_size=3), Rank(1, world_size=3), Rank(2, world_size=3)]
    service.take(
        *[rank.record(0, {"a": 1.0}, "sum@dp") for rank in ranks],
        ranks[2].record(0, {"b": 1.0}, "sum@tp"),
        *[rank.done(0) for rank in ranks],
    )

    assert service.rows()[0]["a"] == 3.0
    assert not service.notices


def test_a_place_in_the_topology_that_a_rank_says_later_counts_from_then_on() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    service.take(*[rank.step(0, {"a": 1.0}, "sum@dp") for rank in ranks])

    for rank in ranks:
        rank.writer = replace(rank.writer, topology=TOPOLOGY)
    service.take(*[rank.step(1, {"a": 1.0}, "sum@dp") for rank in ranks])
    service.restart()
    service.take(*[rank.step(2, {"a": 1.0}, "sum@dp") for rank in ranks])

    assert service.rows() == {0: {"a": 2.0}, 1: {"a": 1.0}, 2: {"a": 1.0}}
