"""docs/protocol.md §5.7: restarts with and without a launcher that counts, incarnations, zombies."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import RunStatus
from otel_ml_service.aggregation.attempts import Attempts
from tests.strategies import START, Rank, Service
from tests.unit.otel_ml_service.aggregation.lives import life, live_on


def test_a_restart_at_or_below_the_last_closed_step_opens_the_next_attempt() -> None:
    service, first = Service(), life("a")
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    service.wait(20)
    second = life("b", start=service.now)

    for step in range(7, 12):
        service.take(*[rank.step(step, {"x": 2.0}) for rank in second])
    service.wait(11, *second)  # those of the first life may be late, after twenty seconds in which nobody was heard

    assert [(r.attempt, r.step) for r in service.steps()] == [(0, s) for s in range(10)] + [
        (1, s) for s in range(7, 12)
    ]
    assert service.rows()[7] == {"x": 2.0}
    assert service.engine.status.counts.steps_redone == 3
    assert service.amendments == 0
    assert service.notices == [
        "Attempt 1 begins: rank 0 of role 'trainer' was started again at step 7, and step 9 had been closed. "
        "(otel-ml explain attempt)"
    ]


def test_a_restart_above_the_last_closed_step_continues_the_attempt() -> None:
    service, first = Service(), life("a")
    for step in range(5):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    service.wait(20)
    second = life("b", start=service.now)

    service.take(*[rank.step(5, {"x": 2.0}) for rank in second])

    assert [(record.attempt, record.step) for record in service.steps()][-1] == (0, 5)


def test_a_counting_launcher_decides_and_an_older_attempt_is_fenced() -> None:
    service = Service()
    first, second = life("a", attempt=0), life("b", attempt=1)
    for step in range(3):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    service.take(first[0].step(3, {"x": 1.0}), first[0].step(4, {"x": 1.0}))

    service.take(second[0].record(4, {"x": 2.0}))
    service.take(first[1].step(4, {"x": 9.0}))  # a zombie
    service.take(second[0].done(4), second[1].step(4, {"x": 2.0}))

    assert [(record.attempt, record.step) for record in service.steps()] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 4)]
    assert service.rows()[4] == {"x": 2.0}
    assert service.engine.status.counts.superseded == 2
    assert service.rows(own=True)[4]["otel_ml/superseded"] == 2.0


def test_a_preempted_job_that_continues_under_the_same_id_is_a_new_attempt_though_its_launcher_counts_from_0() -> None:
    service, first = Service(), life("a", attempt=0)
    for step in range(5):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    service.take(*[rank.bye("killed") for rank in first])
    second = life("b", attempt=0, start=START + 60)

    for step in range(3, 6):
        service.take(*[rank.step(step, {"x": 2.0}) for rank in second])
    service.take(*[rank.bye() for rank in second])

    assert [(r.attempt, r.step) for r in service.steps()][-3:] == [(1, 3), (1, 4), (1, 5)]
    assert [r.status for r in service.records if isinstance(r, RunStatus)] == ["killed", "running", "finished"]


def test_the_newest_incarnation_replaces_one_that_died_within_a_step() -> None:
    service, first = Service(), life("a")
    for step in range(3):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    service.take(first[0].step(3, {"x": 1.0}), first[1].record(3, {"x": 100.0}))  # rank 1 dies
    service.wait(4, first[0])
    reborn = Rank(1, world_size=2, instance="b-1", clock=service.now)

    service.take(reborn.step(3, {"x": 3.0}))
    service.wait(4, first[0], reborn)

    assert service.rows()[3] == {"x": 2.0}
    assert service.engine.status.counts.superseded == 1
    assert service.amendments == 0


@pytest.mark.parametrize("boot", [{}, {"boot": "host"}], ids=["clock of the service", "clock of the boot"])
def test_a_rank_that_finished_gives_way_where_the_job_is_started_again_for_one_that_died(boot: dict[str, str]) -> None:
    """Rank 0 ends well after steps 3 to 5, rank 1 is killed in step 4; nothing above 2 had closed."""
    service, first = Service(), life("a", **boot)
    for step in range(3):
        service.take(*[[*rank.step(step, {"x": 1.0}, "sum"), *rank.inside(step)] for rank in first])
    service.take(*[first[0].step(step, {"x": 1.0}, "sum") for step in (3, 4, 5)], first[0].bye())
    service.take(first[1].record(3, {"x": 1.0}, "sum"), first[1].record(4, {"x": 1.0}, "sum"))
    service.now += 4
    second = life("b", start=service.now, **boot)

    for step in (3, 4, 5):
        service.take(*[[*rank.step(step, {"x": 2.0}, "sum"), *rank.inside(step)] for rank in second])
    service.take(*[rank.bye() for rank in second])

    assert [service.rows()[step] for step in range(6)] == [{"x": 2.0}] * 3 + [{"x": 4.0}] * 3
    assert service.engine.status.counts.superseded == 5


def test_a_worker_of_a_pool_that_finished_counts_beside_its_successor_while_others_of_its_life_go_on() -> None:
    """Rank 1 is killed and rank 0 ends well in the same step, both are replaced at once; rank 2 works on."""
    service, first = Service(), life("a", world=3)
    for step in range(3):
        service.take(*[[*rank.step(step, {"x": 1.0}, "sum"), *rank.inside(step)] for rank in first])
    service.take(first[0].step(3, {"x": 1.0}, "sum"), first[0].bye(), first[1].record(3, {"x": 1.0}, "sum"))
    service.wait(4, first[2])
    second = life("b", start=service.now)

    service.take(*[[*rank.step(3, {"x": 2.0}, "sum"), *rank.inside(3)] for rank in second])
    service.now += 1
    first[2].clock = service.now
    service.take(first[2].step(3, {"x": 1.0}, "sum"))
    service.wait(4, first[2], *second)

    assert service.rows()[3] == {"x": 6.0}


def test_two_live_writers_of_one_rank_both_count_and_it_is_said() -> None:
    service, one, two = Service(), Rank(0, instance="one"), Rank(0, instance="two")
    service.take(one.step(0, {"x": 1.0}))
    service.wait(1, one)
    two.clock = service.now
    service.take(two.step(0, {"x": 3.0}))
    service.now += 1
    one.clock = two.clock = service.now

    service.take(one.step(1, {"x": 1.0}))
    service.take(two.step(1, {"x": 3.0}))
    service.wait(2, one, two)

    assert service.rows()[1] == {"x": 2.0}
    assert [
        notice for notice in service.notices if notice.startswith("Two live processes are rank 0 of role 'trainer'")
    ]
    assert {record.attempt for record in service.steps()} == {0}


def test_a_beginning_that_arrives_late_still_opens_the_attempt() -> None:
    service, first = Service(), life("a")
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    service.wait(20)
    second = life("b", start=service.now)
    sent = [[rank.step(step, {"x": 2.0}) for rank in second] for step in range(8, 12)]

    for step in (2, 3, 0, 1):  # steps 10 and 11 overtake 8 and 9
        service.take(*sent[step])
    service.wait(11, *second)

    redone = [(record.attempt, record.step) for record in service.steps() if record.attempt == 1]
    assert redone == [(1, 8), (1, 9), (1, 10), (1, 11)]
    assert service.engine.status.counts.superseded == 0


def test_a_role_that_did_not_restart_goes_on() -> None:
    service, trainer, generator = Service(), Rank(0), Rank(0, role="generator")
    for step in range(5):
        service.take(trainer.step(step, {"x": 1.0}), generator.step(step, {"y": 1.0}))
    service.wait(4, generator)
    reborn = Rank(0, instance="b", clock=service.now)

    service.take(reborn.step(3, {"x": 2.0}), generator.step(5, {"y": 1.0}))

    assert [record.step for record in service.steps(role="generator")] == list(range(6))
    assert service.engine.status.counts.superseded == 0


def test_attempts_survive_a_restart_of_the_service() -> None:
    attempts = Attempts()
    attempts.of(1)
    attempts.restart(0)

    again = Attempts(*attempts.state())

    assert [again.of(count) for count in (None, 0, 1)] == [attempts.of(count) for count in (None, 0, 1)] == [2, 2, 3]


def test_an_incarnation_that_was_replaced_is_not_missing_in_the_steps_of_its_successor() -> None:
    """An evaluator is killed in a step, started again at once, and the job ends within the second."""
    service = Service()
    [first], [second] = life("a", world=1), life("b", world=1)
    service.take(first.step(0, {"x": 1.0}), first.record(1, {"x": 1.0}))

    service.take(second.step(1, {"x": 2.0}), second.step(2, {"x": 2.0}), second.bye())

    assert service.rows(own=True)[2] == {"x": 2.0}
    assert [record.writers_missing for record in service.steps()] == [0, 0, 0]
    assert not [notice for notice in service.notices if "closed without" in notice]


def test_a_rank_that_is_new_in_the_restarted_job_belongs_to_the_attempt() -> None:
    service, first = Service(), life("a")
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in first])
    service.wait(5, Rank(0, role="generator"))
    second = life("b", world=3, start=service.now)

    service.take(second[2].step(9, {"x": 2.0}, "sum"))
    service.take(*[rank.step(9, {"x": 2.0}, "sum") for rank in second[:2]])
    live_on(service, second, 10)

    assert [service.rows()[step]["x"] for step in (9, 10, 11, 12)] == [6.0] * 4


def test_a_process_that_joins_a_role_does_not_fence_it_because_another_role_was_restarted() -> None:
    service, actors, trainer = Service(), life("a", role="generator"), Rank(0)
    for step in range(5):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in (*actors, trainer)])
    service.wait(4, actors[0])
    service.take(Rank(0, instance="trainer-b", clock=service.now).step(2, {"x": 1.0}, "sum"))  # attempt 1

    newcomer = Rank(1, role="generator", instance="b-1", world_size=2, clock=service.now)
    for step in range(5, 8):
        service.take(actors[0].step(step, {"x": 1.0}, "sum"), newcomer.step(step, {"x": 2.0}, "sum"))

    rows = service.rows(role="generator")
    assert [rows[step]["generator/x"] for step in (4, 5, 6, 7)] == [2.0, 3.0, 3.0, 3.0]
    assert service.engine.status.counts.superseded == 0


def test_clocks_of_hosts_that_are_an_hour_apart_change_nothing_in_a_restart() -> None:
    service = Service()
    first = [Rank(0, world_size=2, instance="a-0"), Rank(1, world_size=2, instance="a-1", clock=START + 3600)]
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in first])
    service.wait(4, Rank(0, role="generator"))
    second = [
        Rank(0, world_size=2, instance="b-0", clock=service.now),
        Rank(1, world_size=2, instance="b-1", clock=service.now + 3600),
    ]

    for step in range(8, 12):
        service.take(*[rank.step(step, {"x": 2.0}, "sum") for rank in second])

    assert [(r.attempt, r.step) for r in service.steps()][10:] == [(1, 8), (1, 9), (1, 10), (1, 11)]
    assert service.rows()[8] == {"x": 4.0}
    assert not [notice for notice in service.notices if "Two live" in notice]


def test_what_a_killed_process_had_left_of_steps_before_the_restart_still_counts() -> None:
    service, first = Service(), life("a")
    for step in range(5):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in first])
    left = [first[1].step(step, {"x": 1.0}, "sum") for step in range(5, 10)]
    for step in range(5, 10):
        service.take(first[0].step(step, {"x": 1.0}, "sum"))
    service.wait(20, Rank(0, role="generator"))  # rank 1 is given up; steps 5 to 9 close without it
    second = life("b", start=service.now)
    service.take(*[rank.step(8, {"x": 2.0}, "sum") for rank in second])

    service.take(*left)
    service.wait(20, *second)

    rows = service.rows()
    assert [rows[step]["x"] for step in range(4, 9)] == [2.0, 2.0, 2.0, 2.0, 4.0]
    assert service.engine.status.counts.superseded == 2


def test_the_memory_of_steps_that_are_done_again_is_given_back() -> None:
    service, first = Service(), life("a")
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in first])
    service.wait(20)
    second = life("b", start=service.now)
    service.take(*[rank.step(3, {"x": 2.0}) for rank in second])
    counted = service.engine.status.retained_bytes

    service.restart()  # what is kept is weighed anew

    assert counted == service.engine.status.retained_bytes > 0


def test_what_a_child_of_an_older_life_records_belongs_to_the_attempt_of_its_parent() -> None:
    service, first = Service(), life("a")
    for step in range(6):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in first])
    service.wait(20)
    second = life("b", start=service.now)
    for step in range(3, 8):
        service.take(*[rank.step(step, {"x": 2.0}, "sum") for rank in second])
    service.wait(12, *second)  # it is a restart
    child = Rank(0, instance="a-0-child", parent="a-0", clock=service.now)

    service.take(child.step(5, {"x": 10.0}, "sum"))
    service.wait(12, *second)

    assert service.rows()[5] == {"x": 4.0}
    assert service.engine.status.counts.superseded == 1
