"""Jobs that close without time-outs and without amendments."""

from __future__ import annotations

from otel_ml_exporters.records import RunStatus, StepRecord
from tests.strategies import Rank, Service


def assert_quiet(service: Service) -> None:
    """Nothing was missing, amended, too late, or worth a word; the clock was never needed."""
    assert service.notices == []
    assert service.amendments == 0
    assert not any("otel_ml/" in name for record in service.steps() for name in record.values)


def test_eight_ranks_ddp_close_each_step_when_the_last_rank_is_done() -> None:
    service, ranks = Service(), [Rank(rank, world_size=8) for rank in range(8)]

    for step in range(5):
        for rank in ranks[:-1]:
            service.take(rank.step(step, {"loss": float(rank.writer.rank)}))
        assert len(service.steps()) == step
        service.take(ranks[-1].step(step, {"loss": 7.0}))
        assert service.rows()[step] == {"loss": 3.5}

    service.take(*[rank.bye() for rank in ranks])
    assert_quiet(service)
    assert isinstance(service.records[-1], RunStatus)
    assert service.records[-1].status == "finished"


def test_a_later_launch_adds_tags_and_replaces_notes_and_the_lowest_rank_counts() -> None:
    service = Service()
    launches = [
        [Rank(1, instance="a1", tags=("rank 1",), notes="of rank 1"), Rank(0, instance="a0", tags=("one", "both"))],
        [Rank(0, instance="b0", tags=("both", "two"), notes="second"), Rank(1, instance="b1", tags=("rank 1",))],
        [Rank(0, instance="c0")],
    ]

    for step, ranks in enumerate(launches):
        service.take(*[rank.step(step, {"loss": 1.0}) for rank in ranks], *[rank.bye() for rank in ranks])
        service.restart()

    assert service.engine.facts.tags == ("one", "both", "two")
    assert service.engine.facts.notes == "second"


def test_only_rank_0_logs_and_each_step_closes_with_it() -> None:
    service, lone = Service(), Rank(0, world_size=8)

    service.take(lone.step(0, {"loss": 1.0}))
    service.wait(3, lone)  # the first step waits for the world, at most so long
    for step in range(1, 4):
        service.take(lone.step(step, {"loss": 1.0}))
        assert step in service.rows()

    assert_quiet(service)


def test_ranks_that_log_nothing_but_walk_through_the_steps_are_not_missing() -> None:
    service, ranks = Service(), [Rank(rank, world_size=4) for rank in range(4)]

    for step in range(4):
        service.take(ranks[0].step(step, {"loss": 1.0}), *[rank.done(step) for rank in ranks[1:]])
        assert service.rows()[step] == {"loss": 1.0}

    assert_quiet(service)


def test_an_evaluator_every_100_steps_does_not_hold_the_trainers() -> None:
    service, trainer, evaluator = Service(), Rank(0), Rank(0, role="evaluator")

    for step in range(300):
        service.take(trainer.step(step, {"loss": 1.0}))
        if step % 100 == 0:
            service.take(evaluator.step(step, {"accuracy": 0.5}, axis="eval"))
        assert len(service.steps()) == step + 1

    service.take(trainer.bye(), evaluator.bye())
    assert list(service.rows(axis="eval", role="evaluator")) == [0, 100, 200]
    assert service.rows(axis="eval", role="evaluator")[0] == {"evaluator/eval/accuracy": 0.5}
    assert_quiet(service)


def test_a_generator_three_steps_behind_does_not_hold_the_trainers() -> None:
    service, trainer, generator = Service(), Rank(0), Rank(0, role="generator")

    for step in range(20):
        service.take(trainer.step(step, {"loss": 1.0}))
        if step >= 3:
            service.take(generator.step(step - 3, {"tokens": 2.0}))
        assert len(service.steps()) == step + 1
        assert len(service.steps(role="generator")) == max(0, step - 2)

    assert_quiet(service)


def test_a_straggler_two_seconds_late_at_every_step_is_waited_for() -> None:
    service, fast, slow = Service(), Rank(0, world_size=2), Rank(1, world_size=2)

    for step in range(12):
        service.take(fast.step(step, {"loss": 0.0}))
        service.wait(2, fast, slow)
        service.take(slow.step(step, {"loss": 1.0}))
        assert service.rows()[step] == {"loss": 0.5}

    assert_quiet(service)


def test_three_policy_versions_in_flight_close_in_order_when_each_is_done() -> None:
    service, ranks = Service(), [Rank(rank, role="generator", world_size=2) for rank in range(2)]
    axis = "policy_version"

    for newest in range(2, 10):
        batches = [
            rank.record(newest - age, {"reward": 1.0}, axis=axis)
            for rank in ranks
            for age in (1, 0, 2)
            if newest - age >= 0
        ]
        service.take(*batches)
        service.take(*[rank.done(newest - 2, axis=axis) for rank in ranks])
        assert [record.step for record in service.steps(axis=axis, role="generator")] == list(range(newest - 1))

    assert_quiet(service)
    assert service.amendments == 0


def test_a_version_that_is_done_first_waits_for_an_older_one_that_has_points() -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.record(7, {"reward": 1.0}), rank.record(8, {"reward": 2.0}), rank.done(8))
    assert service.rows() == {}
    service.take(rank.record(7, {"tokens": 3.0}), rank.done(7))

    assert service.rows() == {7: {"reward": 1.0, "tokens": 3.0}, 8: {"reward": 2.0}}
    assert_quiet(service)


def test_log_with_steps_in_the_order_5_3_4_closes_in_the_order_3_4_5() -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.record(5, {"x": 5.0}))
    service.take(rank.record(3, {"x": 3.0}), rank.record(4, {"x": 4.0}))
    service.take(rank.done(3), rank.done(4))  # 5 was entered before; it may go on
    service.take(rank.done(5), rank.bye())

    assert [(record.step, dict(record.values)) for record in service.steps()] == [
        (3, {"x": 3.0}),
        (4, {"x": 4.0}),
        (5, {"x": 5.0}),
    ]
    assert_quiet(service)


def test_the_first_part_of_a_name_is_the_section_of_its_role_in_backends_that_group_names() -> None:
    service = Service()
    for role in ("trainer", "generator", "replay_buffer"):
        rank = Rank(0, role=role)
        for axis in ("step", "rollout"):
            service.take(rank.step(0, {"loss": 1.0, "time/forward": 1.0}, axis=axis), rank.step(1, {}, axis=axis))

    names = [name for one in service.records if isinstance(one, StepRecord) for name in one.values]
    sections = {name.partition("/")[0] if "/" in name else "" for name in names if "otel_ml" not in name}
    assert sections == {"", "time", "rollout", "generator", "replay_buffer"}
