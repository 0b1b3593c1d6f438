"""What a rank sends for steps long closed while it is open whether the job was restarted (docs/protocol.md §5.6)."""

from __future__ import annotations

import json

import pytest

from otel_ml_service.aggregation.observation import Fragment
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import START, Rank, Service, split

FORGOTTEN = EngineSettings(retained_steps=2, closed_bytes=0)
"""Of all but the newest steps it is known which series they have, and no more."""


def came_back(service: Service) -> tuple[list[Rank], Rank]:
    """Let three ranks do ten steps and one of them be replaced; return the two that go on, and who takes its place."""
    ranks = [Rank(rank, world_size=3) for rank in range(3)]
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0, "z": 1.0}, "sum") for rank in ranks])
        service.wait(1, *ranks)
    service.wait(5, *ranks[:2])
    return ranks[:2], Rank(2, world_size=3, instance="again", clock=service.now)


@pytest.mark.parametrize("restarts", [False, True])
def test_of_a_rank_that_came_back_new_names_land_and_the_others_are_too_late_and_handed_over(restarts: bool) -> None:
    service = Service(FORGOTTEN)
    others, back = came_back(service)

    service.take(back.step(3, {"x": 5.0, "new": 7.0}, "sum"), back.step(4, {"x": 6.0}, "sum"))
    service.take(back.step(5, {"new": 1.0}, "sum"), others[0].record(6, {"told late": 1.0}, "sum"))
    assert service.engine.status.counts.waiting == 5  # it may be the first rank of a job that is started again
    if restarts:
        service.restart()
    service.wait(12, *others, back)

    as_before = {"x": 3.0, "z": 3.0}
    rows = [service.rows()[step] for step in (3, 4, 5)]
    assert rows == [as_before | {"new": 7.0}, as_before, as_before | {"new": 1.0}]
    late = [sent for outcome in service.outcomes for sent in outcome.too_late]
    assert [(sent.step, sent.partials.unpack().stats[:, 1].tolist()) for sent in late] == [(3, [5.0]), (4, [6.0])]
    assert [sent.writer for sent in late] == [back.writer] * 2
    assert service.engine.status.lost == {"too_late": 2}
    in_memory = [
        json.loads(entry)["step"] for key, entry in service.state.items() if key[:5] == "unit/" and key.count("/") == 1
    ]
    assert 4 not in in_memory  # nothing of it is there
    counts = service.engine.status.counts
    assert (counts.waiting, counts.open, counts.received) == (0, 0, counts.closed + counts.too_late)


def test_what_a_collector_has_split_and_is_handed_over_is_told_as_one_message() -> None:
    """In a replay, too, its parts are no duplicates of each other."""
    service = Service(FORGOTTEN)
    others, back = came_back(service)
    whole, alone = back.record(3, {"x": 5.0, "z": 6.0}, "sum") + back.record(3, {"x": 7.0}, "max")
    assert isinstance(whole, Fragment)

    service.take(split(whole, 1), [alone], back.done(3))
    service.wait(5, *others, back)

    late = [sent for outcome in service.outcomes for sent in outcome.too_late if isinstance(sent, Fragment)]
    told = [(sent.seq, sent.seq_points, str(sent.reduction), len(sent.partials.series)) for sent in late]
    assert told == [(1, 2, "sum", 1), (1, 2, "sum", 1), (2, 1, "max", 1)]
    assert {(sent.axis, sent.step) for sent in late} == {("step", 3)}


def of_life(life: str, number: int, born: float) -> Rank:
    return Rank(number, instance=f"{life}-{number}", boot="host", born=START + born, clock=START + born)


def go_through(service: Service, ranks: list[Rank], steps: range) -> None:
    for step in steps:
        service.now += 1.0
        for rank in ranks:
            rank.clock = service.now
        service.take(*[rank.step(step, {"x": 1.0}, "sum") + rank.inside(step) for rank in ranks])


@pytest.mark.parametrize("restarts", [False, True])
def test_of_what_is_carried_into_an_attempt_in_which_the_step_is_forgotten_new_names_land_and_the_rest_is_too_late(
    restarts: bool,
) -> None:
    service = Service(EngineSettings(retained_steps=1, closed_bytes=0))
    go_through(service, [of_life("first", number, 0.0) for number in range(3)], range(11))
    service.wait(40)
    one, early, other = of_life("again", 0, 60.0), of_life("again", 1, 56.0), of_life("again", 2, 61.0)
    service.now = START + 62.0
    go_through(service, [one], range(5, 15))
    service.wait(12, one)
    early.clock = other.clock = service.now
    service.take(early.record(3, {"y": 1.0, "new": 7.0}, "sum") + early.inside(3))  # born before the attempt began
    service.take(one.step(3, {"y": 2.0}, "sum"), one.inside(15))
    go_through(service, [one], range(15, 17))
    if restarts:
        service.restart()

    service.take(other.record(2, {"x": 1.0}, "sum") + other.inside(2))  # all three were started again together
    service.wait(12, one, early, other)

    shown = [record.values for record in service.steps() if (record.attempt, record.step) == (1, 3)]
    assert shown == [{"y": 2.0}, {"new": 7.0}]
    late = [sent for outcome in service.outcomes for sent in outcome.too_late if isinstance(sent, Fragment)]
    assert [(sent.writer, sent.step, sent.partials.stats[:, 1].tolist()) for sent in late] == [(early.writer, 3, [1.0])]
    assert service.engine.status.lost == {"too_late": 1}
    service.restart()


def test_an_attempt_that_begins_while_that_is_open_exports_nothing_in_the_place_of_what_is_forgotten() -> None:
    service = Service(EngineSettings(retained_steps=1, closed_bytes=0))
    go_through(service, [of_life("first", number, 0.0) for number in range(2)], range(11))
    service.wait(40)
    undecided = of_life("undecided", 0, 50.0)
    service.take(undecided.record(3, {"x": 5.0, "new": 7.0}, "sum") + undecided.inside(3), undecided.bye("killed"))
    assert service.engine.status.counts.waiting == 2

    service.now += 5.0
    again = [of_life("again", number, 56.0) for number in (1, 0)]
    service.take(*[rank.step(2, {"x": 1.0}, "sum") + rank.inside(3) for rank in again], *[rank.bye() for rank in again])
    service.wait(12)

    assert any("Attempt 1 begins" in notice for notice in service.notices)
    assert [record.values for record in service.steps() if (record.attempt, record.step) == (0, 3)] == [
        {"x": 2.0},
        {"new": 7.0},
    ]
    assert service.engine.status.lost == {"too_late": 1}
    service.restart()
