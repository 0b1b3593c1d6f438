"""Of how many of a run's ranks something was heard."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import Summary
from tests.strategies import Rank, Service


@pytest.mark.parametrize(
    ("ranks", "heard"),
    [
        ([Rank(0, world_size=2)], (1, 2)),
        ([Rank(0, world_size=2), Rank(1, world_size=2)], (2, 2)),
        ([Rank(0), Rank(0, role="evaluator")], (2, 2)),
        ([Rank(0, world_size=2), Rank(0, role="generator", world_size=2)], (2, 4)),
        ([Rank(0, world_size=4), Rank(2, role="generator", world_size=4)], (2, 4)),
        ([Rank(3, world_size=2)], (1, 2)),
    ],
    ids=["one of two", "both", "nobody says", "two launches", "one launch of two roles", "an odd rank"],
)
def test_of_how_many_ranks_a_run_has_something_was_heard(ranks: list[Rank], heard: tuple[int, int]) -> None:
    service = Service()
    service.take(*[rank.step(0, {"x": 1.0}) for rank in ranks])

    assert service.engine.status.ranks == heard
    service.take(*[rank.bye() for rank in ranks])
    service.wait(400)

    [said] = [record.values for record in service.records if isinstance(record, Summary)]
    assert said.get("otel_ml/ranks_unheard", 0) == heard[1] - heard[0]


def test_ranks_of_an_attempt_with_fewer_of_them_are_all_that_are_missed() -> None:
    service = Service()
    before = [Rank(rank, world_size=4, attempt=0) for rank in range(4)]
    service.take(*[rank.step(0, {"x": 1.0}) for rank in before], *[rank.bye("failed") for rank in before])
    assert service.engine.status.ranks == (4, 4)

    after = Rank(0, world_size=2, attempt=1, instance="1-0")
    service.take(after.step(0, {"x": 1.0}))
    service.wait(11, after)

    assert service.engine.status.ranks == (1, 2)
