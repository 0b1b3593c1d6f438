"""docs/protocol.md §5.10: what becomes of a run when its host says that a process of it is gone."""

from __future__ import annotations

from otel_ml_exporters.records import RunStatus
from tests.strategies import Rank, Service


def job(world_size: int = 3) -> tuple[Service, list[Rank]]:
    """Return a job that has trained four steps."""
    service, ranks = Service(), [Rank(rank, world_size=world_size) for rank in range(world_size)]
    for step in range(4):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(1, *ranks)
    return service, ranks


def missing(service: Service) -> dict[int, float]:
    key = "otel_ml/writers_missing"
    return {step: values[key] for step, values in service.rows(own=True).items() if key in values}


def test_a_run_ends_as_killed_when_its_last_process_has_died() -> None:
    service, ranks = job()

    for rank in ranks[:2]:
        service.take(rank.bye())
        service.wait(0.1)
    service.miss(ranks[2])

    assert service.engine.status.state == "killed"
    assert service.engine.status.last_writer == ranks[1].writer.instance


def test_who_ends_after_another_one_has_died_is_the_last() -> None:
    service, ranks = job(2)
    service.miss(ranks[1])
    assert service.engine.status.state == "running"

    service.take(ranks[0].bye())

    assert service.engine.status.state == "killed"
    assert service.engine.status.last_writer == ranks[0].writer.instance
    assert service.engine.status.left == {rank.writer.instance for rank in ranks}


def test_a_row_does_not_wait_for_who_has_died_and_says_that_it_is_missing() -> None:
    service, ranks = job()
    service.take(ranks[0].step(4, {"x": 1.0}), ranks[1].step(4, {"x": 3.0}))
    assert 4 not in service.rows()

    service.miss(ranks[2])

    assert service.rows()[4] == {"x": 2.0}
    assert missing(service) == {4: 1.0}
    assert [notice for notice in service.notices if "rank 2: killed, or gone without a last message" in notice]
    service.take(ranks[0].step(5, {"x": 1.0}), ranks[1].step(5, {"x": 3.0}))
    assert service.rows()[5] == {"x": 2.0}
    assert missing(service) == {4: 1.0}


def test_what_the_dead_had_recorded_in_a_step_counts_in_its_row() -> None:
    service, ranks = job(2)
    service.take(ranks[1].record(4, {"x": 5.0}), ranks[0].step(4, {"x": 1.0}))

    service.miss(ranks[1])

    assert service.rows()[4] == {"x": 3.0}


def test_nobody_is_taken_out_of_a_step_in_which_the_others_still_are() -> None:
    service, ranks = job(2)
    service.take(ranks[1].record(4, {"x": 5.0}), ranks[0].record(4, {"x": 1.0}))

    service.miss(ranks[1])

    assert 4 not in service.rows()
    service.take(ranks[0].done(4))
    assert service.rows()[4] == {"x": 3.0}


def test_a_process_that_was_started_again_ends_the_run_as_it_does() -> None:
    service, ranks = job(2)
    service.miss(ranks[1])
    service.wait(1, ranks[0])
    again = Rank(1, world_size=2, instance="again", clock=service.now)

    for step in range(2, 6):
        service.take(ranks[0].step(step, {"x": 1.0}) if step > 3 else [], again.step(step, {"x": 1.0}))
        service.wait(1, ranks[0], again)
    service.take(ranks[0].bye(), again.bye())
    service.wait(20)

    assert service.engine.status.state == "finished"


def test_a_shutdown_message_that_is_found_late_says_how_it_ended() -> None:
    service, ranks = job(1)
    message = ranks[0].bye()
    service.miss(ranks[0])
    assert service.engine.status.state == "killed"

    service.take(message)

    assert service.engine.status.state == "finished"
    assert [one.status for one in service.records if isinstance(one, RunStatus)] == ["killed", "running", "finished"]


def test_of_who_has_left_and_of_whom_nothing_was_heard_the_process_table_says_nothing_new() -> None:
    service, ranks = job(1)
    service.take(ranks[0].bye())

    service.miss(ranks[0], Rank(7))

    assert service.engine.status.state == "finished"
    assert service.engine.awaited_writers == []


def test_a_child_that_has_died_is_said_once_and_the_run_ends_as_its_ranks_do() -> None:
    service, ranks = job(1)
    children = [Rank(0, instance=f"child-{number}", parent=ranks[0].writer.instance) for number in range(2)]
    service.take(*[child.record(4, {"y": 1.0}) for child in children])

    service.miss(*children)
    service.take(ranks[0].bye())

    assert service.engine.status.state == "finished"
    assert len([notice for notice in service.notices if "A child of rank 0 ended without its last" in notice]) == 1


def accusations(service: Service) -> list[str]:
    slugs = ("rank-died", "step-open", "step-incomplete", "straggler")
    return [notice for notice in service.notices if any(f"explain {slug})" in notice for slug in slugs)]


def test_nobody_says_that_a_rank_was_killed_or_silent_that_has_ended_well_and_whose_children_have_died() -> None:
    service, parent = Service(), Rank(0)
    children = [Rank(0, instance=f"child-{number}", parent=parent.writer.instance) for number in range(2)]
    service.take(*[child.record(step, {"x": 1.0}) for step, child in enumerate(children, 1)])
    service.engine.note_died([child.writer for child in children], service.now)
    service.take(*[parent.step(step, {"x": 3.0}) for step in range(4)], parent.bye())

    assert service.rows() == {0: {"x": 3.0}, 1: {"x": 2.0}, 2: {"x": 2.0}, 3: {"x": 3.0}}
    assert missing(service) == {}
    assert accusations(service) == []
    assert len([notice for notice in service.notices if "A child of rank 0 ended without its last" in notice]) == 1
    assert service.engine.status.state == "finished"


def test_of_a_child_that_outlives_its_rank_nobody_says_that_the_rank_is_waited_for() -> None:
    service, parent, evaluator = Service(), Rank(0), Rank(0, role="evaluator")
    child = Rank(0, instance="child", parent=parent.writer.instance)
    service.take(evaluator.step(0, {"x": 1.0}), *[parent.step(step, {"x": 1.0}) for step in range(4)])

    service.take(parent.step(4, {"x": 1.0}), child.record(5, {"x": 3.0}), parent.step(6, {"x": 1.0}), parent.bye())
    service.wait(70, evaluator, child)

    assert service.rows() == {step: {"x": 3.0 if step == 5 else 1.0} for step in range(7)}
    [said] = accusations(service)
    assert "waits no longer for a child of rank 0: nothing was heard from there" in said
