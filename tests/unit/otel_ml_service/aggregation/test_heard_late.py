"""docs/protocol.md §5.7: who is heard late, in one burst or after its successor, and who hangs."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import RunStatus
from tests.strategies import START, Rank, Service
from tests.unit.otel_ml_service.aggregation.lives import life, live_on


def test_a_life_that_arrives_in_one_burst_is_not_taken_for_one_that_began_with_the_restart() -> None:
    service, first = Service(), life("a")
    burst = []
    for step in range(10):
        for rank in first:
            rank.clock = START + step
        service.now = START + step
        service.take(first[1].step(step, {"x": 1.0}, "sum"))
        burst.append(first[0].step(step, {"x": 1.0}, "sum"))
    service.now += 0.5
    service.take(*burst)  # rank 0 could not send before, and was killed
    second = life("b", start=service.now + 1)
    service.now += 1

    live_on(service, second, 8)

    assert [service.rows()[step]["x"] for step in (0, 7, 8, 9, 10)] == [2.0, 2.0, 4.0, 4.0, 4.0]
    assert [r.step for r in service.steps() if r.attempt == 1] == [8, 9, 10]


def test_a_process_that_is_heard_only_after_the_one_that_followed_it_changes_nothing_of_that_one() -> None:
    service, first = Service(), life("a", boot="b")
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    service.wait(40)  # a service that nobody reaches; a second life begins and ends meanwhile
    third = life("c", start=service.now, boot="b")
    for step in range(8, 12):
        service.take(*[rank.step(step, {"x": 3.0}) for rank in third])
    service.wait(3, *third)

    second = life("b", start=START + 10, boot="b")
    for step in range(6, 11):
        service.take(*[rank.step(step, {"x": 2.0}) + rank.inside(step) for rank in second])
    service.restart()
    for rank in third:
        rank.clock = service.now
    for step in range(12, 15):
        service.take(*[rank.step(step, {"x": 3.0}) for rank in third])
    service.take(*[rank.bye() for rank in third])

    assert {step: values["x"] for step, values in service.rows().items()} == {
        **dict.fromkeys(range(6), 1.0),
        **dict.fromkeys(range(6, 8), 2.0),
        **dict.fromkeys(range(8, 15), 3.0),
    }
    assert {record.attempt for record in service.steps()} == {0, 1}
    assert service.engine.status.counts.superseded == 2 * 2 + 3 * 2  # a's steps 6 and 7; b's from 8 on


def test_a_process_that_is_heard_only_after_the_first_one_that_was_is_part_of_its_attempt() -> None:
    service = Service()
    service.wait(40)
    second = life("b", start=service.now, boot="b")
    for step in range(5, 8):
        service.take(*[rank.step(step, {"x": 2.0}) for rank in second])
    service.wait(3, *second)

    first = life("a", start=START + 10, boot="b")
    for step in range(7):
        service.take(*[rank.step(step, {"x": 1.0}) + rank.inside(step) for rank in first])
    for rank in second:
        rank.clock = service.now
    service.take(*[rank.step(8, {"x": 2.0}) for rank in second], *[rank.bye() for rank in second])

    assert {step: values["x"] for step, values in service.rows().items()} == {
        **dict.fromkeys(range(5), 1.0),
        **dict.fromkeys(range(5, 9), 2.0),
    }
    assert {record.attempt for record in service.steps()} == {0}


def zombies(service: Service, order: tuple[int, int]) -> list[Rank]:
    """Let rank 1 of a job die and rank 0 hang, and the job be started again at step 7; return its new ranks."""
    first = life("a")
    for step in range(10):
        service.now += 0.1
        for rank in first:
            rank.clock = service.now
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in first])
    service.wait(5, first[0])
    second = life("b", start=service.now)
    for step in range(7, 13):
        for number in order:
            service.now += 0.3
            second[number].clock = service.now
            service.take(second[number].step(step, {"x": 2.0}, "sum"))
            service.now += 0.3
            first[0].clock = service.now
            service.take(first[0].inside(9))
    service.take(first[0].step(13, {"x": 100.0}, "sum"))  # it wakes up, and goes on
    for rank in second:
        service.take(rank.step(13, {"x": 2.0}, "sum"))
    service.wait(20, first[0], *second)
    return second


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_rank_that_hangs_while_its_job_is_started_again_is_no_twin(order: tuple[int, int]) -> None:
    """Nobody counts: but another rank died, and is back where the steps had closed, so the whole job was restarted."""
    service = Service()

    zombies(service, order)

    assert [(r.attempt, r.step) for r in service.steps()][10:] == [(1, step) for step in range(7, 14)]
    assert [service.rows()[step]["x"] for step in range(6, 14)] == [2.0] + [4.0] * 7
    assert service.amendments == 0
    assert service.engine.status.counts.superseded == 1
    assert not [notice for notice in service.notices if "Two live" in notice]
    assert [
        notice for notice in service.notices if notice.startswith("Rank 0 of role 'trainer' still runs in attempt 0")
    ]


def test_a_run_does_not_wait_for_the_end_of_a_rank_that_hangs_in_an_older_attempt() -> None:
    service = Service()
    second = zombies(service, (0, 1))

    service.take(*[rank.bye() for rank in second])
    service.wait(5)

    assert [r.status for r in service.records if isinstance(r, RunStatus)] == ["finished"]


def test_an_attempt_begins_at_its_first_step_in_whatever_order_its_steps_arrive() -> None:
    service = Service()
    first, second = life("a", attempt=0), life("b", attempt=1)
    for step in range(3):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    steps = [rank.step(step, {"x": 2.0}) for step in (3, 4, 5) for rank in second]

    service.take(*steps[4:], *steps[2:4])  # step 3 is still under way
    service.take(*steps[:2])
    service.take(first[0].step(3, {"x": 1.0}), first[0].step(4, {"x": 1.0}))  # so is what the older attempt left
    service.take(*[rank.bye() for rank in second])

    assert [(record.attempt, record.step) for record in service.steps()] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 3),
        (1, 4),
        (1, 5),
    ]
    assert service.amendments == 0
    assert service.engine.status.counts.superseded == 2


def test_a_rank_of_which_nothing_was_heard_while_it_lived_is_in_the_attempt_of_those_that_began_with_it() -> None:
    service, [heard, unheard] = Service(), life("a", boot="b")
    for step in range(6):
        service.take(heard.step(step, {"x": 1.0}))
        service.wait(1, heard)
    service.wait(20)
    second = life("b", start=service.now, boot="b")
    for step in range(4, 8):
        service.take(*[rank.step(step, {"x": 2.0}) for rank in second])
    service.wait(3, *second)

    for step in range(6):
        service.take(unheard.step(step, {"x": 3.0}) + unheard.inside(step))
    service.take(*[rank.bye() for rank in second])

    assert {step: values["x"] for step, values in service.rows().items()} == {
        **dict.fromkeys(range(4), 2.0),
        **dict.fromkeys(range(4, 8), 2.0),
    }
    assert [(record.attempt, record.step) for record in service.steps() if record.amendment] == [
        (0, step) for step in range(4)
    ]


def test_a_queue_on_the_way_makes_nobody_dead() -> None:
    service, [one, two] = Service(), life("a", boot="b")
    for step in range(6):
        service.take(*[rank.step(step, {"x": 1.0}) + rank.inside(step) for rank in (one, two)])
        service.wait(1, one, two)
    reborn = Rank(1, world_size=2, instance="b-1", clock=service.now + 1, boot="b", born=service.now + 0.5)
    service.now += 15  # a Collector that waited for its receiver, and overtakes itself
    service.take(reborn.step(4, {"x": 3.0}) + reborn.inside(4))
    service.wait(3)

    one.clock = reborn.clock + 5
    service.take(one.step(6, {"x": 1.0}) + one.inside(7))
    service.take(*[reborn.step(step, {"x": 3.0}) for step in (5, 6)], one.bye(), reborn.bye())

    assert {record.attempt for record in service.steps()} == {0}
    assert service.rows()[6] == {"x": 2.0}


def test_a_rank_first_heard_after_its_attempt_was_over_and_before_its_successor_is_in_its_own_attempt() -> None:
    service, first = Service(), life("a", boot="b")
    for step in range(6):
        service.take(*[rank.step(step, {"x": 1.0}) + rank.inside(step) for rank in first])
    service.wait(20)
    heard, unheard = life("b", start=service.now, boot="b")
    for step in range(2, 8):
        service.take(heard.step(step, {"x": 2.0}) + heard.inside(step))
        service.wait(1)
    service.wait(20)
    third = life("c", start=service.now, boot="b")
    service.take(third[0].step(6, {"x": 3.0}) + third[0].inside(6))
    service.wait(3, third[0])

    for step in range(2, 8):
        service.take(unheard.step(step, {"x": 4.0}) + unheard.inside(step))
    service.take(third[1].step(6, {"x": 3.0}) + third[1].inside(6), *[rank.bye() for rank in third])

    assert {record.step for record in service.steps() if record.attempt == 2} == {6}
    assert {step: service.rows()[step]["x"] for step in range(2, 7)} == {**dict.fromkeys(range(2, 6), 3.0), 6: 3.0}


def test_a_child_that_is_heard_before_its_parent_does_not_keep_that_in_the_older_attempt() -> None:
    service, first = Service(), Rank(0, instance="a", boot="b", born=START)
    for step in range(10):
        service.take(first.step(step, {"x": 1.0}) + first.inside(step))
    service.take(first.bye("failed"))
    service.wait(5)
    parent = Rank(0, instance="b", boot="b", born=service.now, clock=service.now)
    child = Rank(0, instance="c", parent="b", boot="b", born=service.now + 0.1, clock=service.now)

    service.take(child.step(4, {"y": 2.0}))
    service.take(parent.step(4, {"x": 2.0}), parent.step(5, {"x": 2.0}), child.bye(), parent.bye())

    assert service.rows()[4] == {"x": 2.0, "y": 2.0}
    assert service.rows()[5] == {"x": 2.0}


def test_a_rank_that_began_first_and_is_heard_last_is_in_the_attempt_of_those_it_was_started_with() -> None:
    """It evaluates before it goes on: its first step is below that of the others."""
    service, first = Service(), life("a", boot="b")
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") + rank.inside(step) for rank in first])
    service.wait(20)
    last, one = (
        life("b", start=service.now, boot="b")[1],
        Rank(0, world_size=2, instance="b-0", boot="b", born=service.now + 0.5, clock=service.now + 0.5),
    )
    service.now += 1
    service.take(one.step(8, {"x": 2.0}, "sum") + one.inside(8))
    service.wait(3, one)

    service.take(*[last.step(step, {"x": 2.0}, "sum") for step in (7, 8, 9)])
    service.take(one.step(9, {"x": 2.0}, "sum"), one.bye(), last.bye())

    assert {step: service.rows()[step]["x"] for step in (8, 9)} == {8: 4.0, 9: 4.0}


def test_a_rank_of_a_life_that_is_over_is_not_taken_for_one_of_the_next_whose_like_was_heard_last() -> None:
    service, first = Service(), life("a", boot="b")
    for step in range(5):
        service.take(first[1].step(step, {"x": 1.0}, "sum"))
    left = [first[0].step(step, {"x": 1.0}, "sum") for step in range(3, 5)]  # in a spool
    service.wait(40)
    second = life("b", start=service.now, boot="b")
    for step in range(2, 7):
        service.take(second[1].step(step, {"x": 2.0}, "sum"), second[1].inside(step))
    service.wait(12, second[1])

    service.take(*left)
    service.wait(12, second[1])

    assert [service.rows()[step]["x"] for step in range(7)] == [1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert service.engine.status.counts.superseded == 2


def test_a_run_began_when_what_was_heard_first_was_recorded_and_not_when_it_arrived() -> None:
    service, rank = Service(), Rank(0, world_size=1, clock=START)
    service.now = START + 3.0

    service.take(rank.step(0, {"x": 1.0}))
    rank.clock = START - 5.0
    service.now = START + 4.0
    service.take(rank.step(1, {"x": 1.0}))  # what comes later changes nothing: backends have the run by then
    service.restart()
    service.take(rank.step(2, {"x": 1.0}))

    assert service.engine.facts.started_at == START


def test_a_clock_that_is_ahead_of_the_service_does_not_begin_a_run_in_the_future() -> None:
    service, rank = Service(), Rank(0, world_size=1, clock=START + 600.0)
    service.now = START

    service.take(rank.step(0, {"x": 1.0}))

    assert service.engine.facts.started_at == START
