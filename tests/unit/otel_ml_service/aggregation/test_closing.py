"""docs/protocol.md §5.4: when a step closes."""

from __future__ import annotations

import pytest

from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import Rank, Service


def warmed_up(ranks: list[Rank], steps: int = 4) -> Service:
    """Return a service in which every rank is a known member, steps 0 … `steps` - 1 closed a second apart."""
    service = Service()
    for step in range(steps):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(1, *ranks)
    assert len(service.steps()) == steps
    return service


@pytest.fixture
def ranks() -> list[Rank]:
    return [Rank(rank, world_size=3) for rank in range(3)]


def test_a_step_waits_for_every_member_however_long_it_still_records(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)

    service.take(ranks[0].step(4, {"x": 1.0}), ranks[1].step(4, {"x": 1.0}))
    for _ in range(20):
        service.take(ranks[2].record(4, {"x": 4.0}))
        service.wait(5, *ranks)
        assert 4 not in service.rows()
    service.take(ranks[2].done(4))

    assert service.rows()[4] == {"x": (2 + 20 * 4.0) / 22}


def test_a_step_waits_for_points_that_a_manifest_has_overtaken(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)
    points, watermark = ranks[2].step(4, {"x": 7.0})

    service.take(ranks[0].step(4, {"x": 1.0}), ranks[1].step(4, {"x": 1.0}), [watermark])
    assert 4 not in service.rows()
    service.take([points])

    assert service.rows()[4] == {"x": 3.0}
    assert service.amendments == 0


def test_a_manifest_that_overtakes_an_older_step_does_not_pass_it_over(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)
    late = ranks[2].step(4, {"x": 7.0})

    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks[:2]])
    service.take(*[rank.step(5, {"x": 1.0}) for rank in ranks])
    assert 4 not in service.rows()
    service.take(late)

    assert service.rows()[4] == {"x": 3.0}
    assert service.rows()[5] == {"x": 1.0}
    assert service.amendments == 0


def test_a_later_manifest_means_done_with_the_steps_passed_over(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)

    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks[:2]])
    assert 4 not in service.rows()
    service.take(ranks[2].step(5, {"x": 1.0}))

    assert service.rows()[4] == {"x": 1.0}
    assert "otel_ml/writers_missing" not in service.rows(own=True)[4]


def test_a_member_that_dies_delays_one_step_once(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)
    alive = ranks[:2]

    service.take(*[rank.step(4, {"x": 1.0}) for rank in alive])
    service.wait(9, *alive)
    assert 4 not in service.rows()
    service.wait(2, *alive)
    assert service.rows(own=True)[4] == {"x": 1.0, "otel_ml/writers_missing": 1.0}
    service.take(*[rank.step(5, {"x": 1.0}) for rank in alive])

    assert service.rows(own=True)[5] == {"x": 1.0}
    assert [n for n in service.notices if "closed without rank 2" in n]


def test_who_holds_a_step_is_named_beyond_the_allowed_lateness(ranks: list[Rank]) -> None:
    service = Service()
    for step in range(10):  # 20 s a step: a quiet rank is waited for 40 s
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(20, *ranks)

    service.take(*[rank.step(10, {"x": 1.0}) for rank in ranks[:2]])
    service.wait(11, *ranks)

    (said,) = service.notices
    assert said.startswith("step 10 of role 'trainer' (attempt 0) is still open: it waits for rank 2.")
    (held,) = service.engine.status.holding
    assert (held.role, held.axis, held.step, held.ranks) == ("trainer", "step", 10, (2,))


def test_a_rank_that_has_lost_what_it_sent_of_many_steps_is_named_once_until_it_has_been_there_for_a_while() -> None:
    service, ranks = Service(), [Rank(rank) for rank in range(2)]
    lost = [*range(4, 100), *range(120, 150)]
    for step in range(160):
        sent = ranks[1].step(step, {"x": 3.0})
        service.take(ranks[0].step(step, {"x": 1.0}), [] if step in lost else sent)
    service.take(ranks[0].bye(), ranks[1].bye())
    service.wait(400)

    assert service.engine.status.state == "finished"
    assert service.rows() == {step: {"x": 1.0 if step in lost else 2.0} for step in range(160)}
    incomplete = {step for step, row in service.rows(own=True).items() if "otel_ml/writers_missing" in row}
    assert incomplete == set(lost)
    assert [said.partition(" of role")[0] for said in service.notices if "explain step-incomplete" in said] == [
        "step 4",
        "step 120",
    ]


def test_a_rank_that_lags_for_many_steps_is_named_once_until_it_has_caught_up(ranks: list[Rank]) -> None:
    service, slow = Service(), ranks[2]
    for step in range(10):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(20, *ranks)

    def lag(steps: range) -> None:
        for step in steps:
            service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks[:2]])
        for step in steps:
            service.wait(11, *ranks)
            service.take(slow.step(step, {"x": 1.0}))

    lag(range(10, 60))
    assert len(service.notices) == 1
    for step in range(60, 90):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(20, *ranks)
    lag(range(90, 95))

    assert [said.partition(" (attempt")[0] for said in service.notices] == [
        "step 10 of role 'trainer'",
        "step 90 of role 'trainer'",
    ]
    assert len(service.rows()) == 95


def test_a_writer_that_left_returns_after_two_steps_in_a_row(ranks: list[Rank]) -> None:
    service, slow = warmed_up(ranks), ranks[2]
    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks[:2]])
    service.wait(11, *ranks)
    assert 4 in service.rows()

    service.take(*[rank.step(5, {"x": 1.0}) for rank in ranks[:2]])
    service.take(slow.step(4, {"x": 4.0}), slow.step(5, {"x": 4.0}))  # both late, but in a row
    service.take(*[rank.step(6, {"x": 1.0}) for rank in ranks[:2]])
    assert 6 not in service.rows()
    service.take(slow.step(6, {"x": 4.0}))

    assert service.rows()[6] == {"x": 2.0}


def test_until_three_steps_have_closed_a_quiet_member_is_waited_for_60_seconds() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    service.take(*[rank.step(0, {"x": 1.0}) for rank in ranks])

    service.take(ranks[0].step(1, {"x": 1.0}))
    service.wait(59, *ranks)
    assert 1 not in service.rows()
    service.wait(2, *ranks)

    assert 1 in service.rows()


def test_the_first_step_waits_three_seconds_for_the_world() -> None:
    service, ranks = Service(), [Rank(rank, world_size=4) for rank in range(4)]

    service.take(ranks[0].step(0, {"x": 0.0}))
    service.wait(2, *ranks)
    assert service.rows() == {}
    service.take(*[rank.step(0, {"x": 4.0}) for rank in ranks[1:]])

    assert service.rows() == {0: {"x": 3.0}}


def launch_of_two_roles() -> list[Rank]:
    """`mpirun -n 2 trainer : -n 2 generator`: ranks are counted over both."""
    return [Rank(rank, role="trainer" if rank < 2 else "generator", world_size=4) for rank in range(4)]


def test_a_rank_that_is_seen_in_one_role_is_not_awaited_in_another() -> None:
    service, ranks = Service(), launch_of_two_roles()

    service.take(*[rank.step(0, {"x": float(rank.writer.rank)}) for rank in ranks])

    assert service.rows() == {0: {"x": 0.5}}
    assert service.rows(role="generator") == {0: {"generator/x": 2.5}}
    service.take(*[rank.bye() for rank in ranks])
    assert service.engine.status.state == "finished"


def test_a_rank_of_a_launch_of_its_own_is_awaited_though_the_other_launch_has_one_of_that_number() -> None:
    service = Service()
    trainers = [Rank(rank, world_size=2) for rank in range(2)]
    generators = [Rank(rank, role="generator", world_size=2, instance=f"g-{rank}") for rank in range(2)]
    service.take(*[generator.step(0, {"y": 1.0}) for generator in generators])

    service.take(trainers[0].step(0, {"x": 1.0}))
    assert service.rows() == {}
    service.take(trainers[1].step(0, {"x": 3.0}))

    assert service.rows() == {0: {"x": 2.0}}


@pytest.mark.parametrize("world", [2, 4])
def test_the_first_step_after_everybody_said_goodbye_waits_for_the_world(world: int) -> None:
    service, before = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    for step in range(4):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in before])
    service.take(*[rank.bye() for rank in before])
    service.now += 60
    ranks = [Rank(rank, world_size=world, instance=f"b-{rank}", clock=service.now) for rank in range(world)]

    for step in (4, 5):
        service.take(ranks[1].step(step, {"x": 1.0}, "sum"))
    service.wait(2, ranks[1])
    assert 4 not in service.rows()
    for step in (4, 5):
        service.take(*[rank.step(step, {"x": 1.0}, "sum") for rank in ranks if rank is not ranks[1]])

    assert [(record.step, record.attempt, record.values["x"]) for record in service.steps()[4:]] == [
        (4, 0, world),
        (5, 0, world),
    ]


def test_the_first_step_after_everybody_said_goodbye_waits_three_seconds_at_most() -> None:
    service, before = Service(), Rank(0, world_size=1)
    service.take(before.step(0, {"x": 1.0}), before.bye())
    alone = Rank(0, world_size=2, instance="b-0", clock=service.now)

    service.take(alone.step(1, {"x": 1.0}))
    service.wait(4, alone)
    assert 1 in service.rows()
    service.take(alone.step(2, {"x": 1.0}))

    assert 2 in service.rows()


@pytest.mark.feature("F9", "better", "who takes part is learned, nobody registers")
def test_a_rank_that_joins_later_is_a_member_since_its_first_step(ranks: list[Rank]) -> None:
    service, joiner = warmed_up(ranks), Rank(3, world_size=4)

    service.take(joiner.record(5, {"x": 9.0}))
    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks])
    service.take(*[rank.step(5, {"x": 1.0}) for rank in ranks])
    assert 4 in service.rows()
    assert 5 not in service.rows()
    service.take(joiner.done(5))

    assert service.rows()[5] == {"x": 3.0}


def test_a_writer_of_every_tenth_step_is_not_waited_for_in_between(ranks: list[Rank]) -> None:
    service, sparse = Service(), Rank(9, world_size=4)
    for step in range(40):
        if step % 10 == 0:
            service.take(sparse.step(step, {"rare": 1.0}))
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(1, *ranks)
        if step == 2:
            service.wait(61, *ranks)  # learned once

    assert len(service.steps()) == 40
    assert [record.step for record in service.steps()] == list(range(40))


def test_a_long_pause_of_everybody_closes_the_step_and_costs_nobody_the_membership(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)

    service.take(*[rank.record(4, {"x": 1.0}) for rank in ranks])  # … and then an evaluation of a minute
    service.wait(60, *ranks)
    assert service.rows()[4] == {"x": 1.0}
    service.take(*[rank.done(4) for rank in ranks])
    service.take(ranks[0].step(5, {"x": 0.0}))
    assert 5 not in service.rows()
    service.take(ranks[1].step(5, {"x": 0.0}), ranks[2].step(5, {"x": 3.0}))

    assert service.rows()[5] == {"x": 1.0}
    assert service.amendments == 0


def test_clocks_stand_still_while_nobody_at_all_is_heard(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)

    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks[:2]])
    service.wait(200)
    assert 4 not in service.rows()
    service.take(ranks[2].step(4, {"x": 1.0}))

    assert service.rows(own=True)[4] == {"x": 1.0}


def test_after_a_gap_the_clocks_wait_for_every_known_writer_at_most_60_seconds(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)
    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks[:2]])
    service.wait(100)

    service.wait(59, *ranks[:2])
    assert 4 not in service.rows()
    service.wait(12, *ranks[:2])

    assert service.rows(own=True)[4]["otel_ml/writers_missing"] == 1.0


def test_open_state_is_bounded() -> None:
    service = Service(EngineSettings(open_bytes=20_000))
    fast, stuck = Rank(0, world_size=2), Rank(1, world_size=2)
    service.take(fast.step(0, {"x": 1.0}), stuck.step(0, {"x": 1.0}), stuck.record(1, {"x": 1.0}))

    for step in range(1, 200):
        service.take(fast.step(step, {"x": 1.0}))

    assert service.engine.status.open_bytes <= 20_000
    assert [record.step for record in service.steps()] == sorted({record.step for record in service.steps()})
    assert any("the oldest close" in notice for notice in service.notices)


def test_roles_close_their_own_rows_under_their_own_names() -> None:
    service, trainer, generator = Service(), Rank(0), Rank(0, role="generator")

    service.take(trainer.step(3, {"reward": 1.0}), generator.step(3, {"reward": 5.0}))

    assert service.rows() == {3: {"reward": 1.0}}
    assert service.rows(role="generator") == {3: {"generator/reward": 5.0}}


def test_a_child_process_is_never_waited_for_and_pools_with_its_rank() -> None:
    service, parent = Service(), Rank(0)
    child = Rank(0, instance="worker", parent="trainer-0")
    service.take(parent.step(0, {"x": 1.0}), child.record(0, {"x": 3.0}))
    service.take(child.record(1, {"y": 3.0}, "rank"), parent.record(1, {"y": 1.0}, "rank"))
    assert 1 not in service.rows()

    service.take(parent.done(1))

    assert service.rows() == {0: {"x": 2.0}, 1: {"y/rank_0": 2.0}}


def test_a_lost_request_delays_by_the_allowed_lateness_and_no_more(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)
    ranks[2].record(4, {"x": 7.0})  # lost on the way

    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks])
    assert 4 not in service.rows()
    for step in range(5, 16):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(1, *ranks)

    assert service.rows()[4] == {"x": 1.0}
    assert 15 in service.rows()


def test_next_deadline_is_when_something_changes(ranks: list[Rank]) -> None:
    service = warmed_up(ranks)
    assert service.engine.next_deadline() == service.now + 300

    service.take(*[rank.step(4, {"x": 1.0}) for rank in ranks[:2]])
    deadline = service.engine.next_deadline()

    assert deadline is None or service.now < deadline <= service.now + 300


def test_of_many_silent_ranks_sixteen_are_named_and_the_rest_is_counted() -> None:
    service, ranks = Service(), [Rank(rank, world_size=20) for rank in range(20)]
    service.take(*[rank.step(0, {"x": 1.0}) for rank in ranks])
    for step in range(1, 4):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks[:2]])
    service.wait(80, *ranks[:2])

    named = ", ".join(map(str, range(2, 18)))
    assert any(f"ranks {named} and 2 more" in notice for notice in service.notices)


def test_the_first_step_waits_for_who_was_not_heard_from_when_the_first_rank_is_done_with_it() -> None:
    """Not from its beginning: a first step compiles for minutes, on each rank alike."""
    service, rank = Service(), Rank(0, world_size=2)
    service.take(rank.record(0, {"loss": 1.0}))
    service.wait(20, rank)

    service.take(rank.done(0), rank.step(1, {"loss": 2.0}))
    service.wait(2, rank)
    assert service.rows() == {}
    service.wait(2, rank)

    assert service.rows()[0] == {"loss": 1.0}
