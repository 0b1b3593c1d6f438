"""docs/protocol.md §5.10: when a run is over."""

from __future__ import annotations

from cProfile import Profile
from dataclasses import replace

import pytest

from otel_ml_exporters.records import Artifact, RunStatus, Span, SpanBatch, StepRecord, Summary
from otel_ml_service.aggregation.observation import Event, Spans
from tests.strategies import START, Rank, Service, cumulative, writer


def four_steps(ranks: list[Rank]) -> Service:
    service = Service()
    for step in range(4):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(1, *ranks)
    return service


def test_a_run_ends_when_all_writers_said_goodbye_with_the_worst_status() -> None:
    ranks = [Rank(rank, world_size=3) for rank in range(3)]
    service = four_steps(ranks)

    service.take(ranks[0].bye(), ranks[1].bye("failed"))
    assert service.engine.status.state == "running"
    service.take(ranks[2].bye("killed"))

    assert isinstance(service.records[-1], RunStatus)
    assert service.records[-1].status == "failed"
    assert service.engine.status.last_writer is not None


def test_the_last_writer_is_the_one_whose_goodbye_was_heard_last_whatever_its_clock_says() -> None:
    ranks = [Rank(rank, world_size=2) for rank in range(2)]
    service = four_steps(ranks)
    for rank, set_back in zip(ranks, (0.0, 30.0), strict=True):
        rank.clock = service.now - set_back
        service.take(rank.bye())
        service.wait(0.1)

    assert service.engine.status.last_writer == ranks[1].writer.instance
    assert service.engine.status.left == {rank.writer.instance for rank in ranks}


@pytest.mark.parametrize("late", ["spans", "another SDK's step"])
def test_behind_what_comes_after_the_end_and_reopens_nothing_the_run_says_again_how_it_ended(late: str) -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    service.take(*[rank.step(0, {"x": 1.0}) for rank in ranks], ranks[0].bye("failed"), ranks[1].bye())
    service.restart()
    number, source = len(service.records), writer(0, role="other")
    span = Span("0" * 31 + "1", "0" * 15 + "1", None, "late", 1, 2, "trainer", 0, None, None, {})

    service.take(
        [Spans(ranks[0].writer, (span,))]
        if late == "spans"
        else [cumulative(source, "y", 1.0, start=START, time=service.now, step=step) for step in range(2)]
    )

    *came, newest = service.records[number:]
    assert {type(record) for record in came} == {SpanBatch if late == "spans" else StepRecord}
    assert isinstance(newest, RunStatus)
    assert newest.status == "failed"
    service.wait(20)
    assert service.records[-1] is newest, "once"


def test_a_run_ends_when_nobody_was_heard_for_300_seconds_and_later_data_reopens_it() -> None:
    ranks = [Rank(rank, world_size=3) for rank in range(3)]
    service = four_steps(ranks)
    service.take(ranks[0].record(4, {"x": 1.0}))

    service.wait(301)
    assert service.engine.status.state == "killed"
    assert service.rows()[4] == {"x": 1.0}
    service.take(ranks[0].record(5, {"x": 1.0}))

    assert service.engine.status.state == "running"
    assert [r.status for r in service.records if isinstance(r, RunStatus)] == ["killed", "running"]


def test_a_shutdown_message_that_comes_after_the_run_was_taken_for_killed_says_how_it_ended() -> None:
    """It was kept on its host, while nobody answered, and somebody has sent it since (`otel-ml recover`)."""
    ranks = [Rank(rank, world_size=2) for rank in range(2)]
    service = four_steps(ranks)
    kept = [ranks[0].bye(), ranks[1].bye("failed")]

    service.wait(301)
    assert service.engine.status.state == "killed"
    service.take(kept[0])
    service.wait(301)
    assert service.engine.status.state == "killed", "rank 1 still owes its own"
    service.take(kept[1])
    service.wait(1)

    assert service.engine.status.state == "failed"
    service.take(*kept)
    assert [one.status for one in service.records if isinstance(one, RunStatus)] == [
        *["killed", "running", "killed", "running", "failed"]
    ], "once each"


def test_a_process_that_waits_and_sends_its_heartbeat_is_alive() -> None:
    rank = Rank(0)
    service = Service()
    for _ in range(400):  # it loads a model
        service.now += 1
        service.take(rank.waits())
        assert service.engine.status.writers_live == 1
    service.take(rank.step(0, {"x": 1.0}))
    for _ in range(400):  # it evaluates
        service.now += 1
        service.take(rank.waits())
    assert service.engine.status.state == "running"

    service.wait(301)

    assert service.engine.status.state == "killed"


def test_who_dies_while_it_waits_before_its_first_step_is_killed() -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.waits())
    service.wait(301)

    assert service.engine.status.state == "killed"


def test_for_time_outs_the_clocks_stand_still_while_everybody_waits() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    for step in range(4):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks])
        service.wait(1, *ranks)
    service.take(ranks[0].step(4, {"x": 1.0}))

    for _ in range(200):
        service.now += 1
        service.take(*[rank.waits() for rank in ranks])

    assert 4 not in service.rows()
    service.take(ranks[1].step(4, {"x": 3.0}))
    assert service.rows()[4] == {"x": 2.0}


def test_a_run_ends_after_the_files_that_are_looked_for_also_by_a_successor() -> None:
    rank = Rank(0)
    service = four_steps([rank])
    service.take(rank.event("ml.artifact", b"", 3, name="model", **{"artifact.size": 5 * 2**20}), rank.bye())
    [named] = service.outcomes[-1].named
    service.restart()
    service.engine.expect(1)
    service.wait(1000)
    assert service.engine.status.state == "running"

    service.engine.found(named.artifact)
    service.settle()

    assert [type(record) for record in service.records[-3:] if not isinstance(record, Summary)] == [Artifact, RunStatus]


def test_a_file_that_comes_after_the_end_is_followed_by_how_the_run_had_ended() -> None:
    ranks = [Rank(rank, world_size=2) for rank in range(2)]
    service = four_steps(ranks)
    service.take(ranks[0].bye(), ranks[1].bye("failed"))

    for _ in range(2):
        service.take([Event(writer(9, instance="a tool"), None, "ml.artifact", 1, None, None, {}, b"report")])
        service.restart()

    ended = [record for record in service.records if isinstance(record, (RunStatus, Artifact))]
    kinds = [record.status if isinstance(record, RunStatus) else "file" for record in ended]
    assert kinds == ["failed", "running", "file", "failed"]  # the same file again changes nothing


@pytest.mark.parametrize("counts", [True, False])
def test_a_short_attempt_waits_for_its_other_ranks_though_they_were_in_the_one_before(counts: bool) -> None:
    def life(attempt: int) -> list[Rank]:
        facts = {"attempt": attempt} if counts else {}
        return [Rank(rank, world_size=2, instance=f"{attempt}-{rank}", **facts) for rank in range(2)]

    service, (first, second) = Service(), life(0)
    for step in range(3):
        service.take(first.step(step, {"x": 1.0}), second.step(step, {"x": 1.0}))
    service.take(first.bye("failed"), second.bye("killed"))
    early, late = life(1)

    service.take(*[early.step(step, {"x": 2.0}) for step in range(2, 6)], early.bye())
    service.wait(1)
    service.take(*[late.step(step, {"x": 4.0}) for step in range(2, 6)], late.bye())

    assert service.rows() == {0: {"x": 1.0}, 1: {"x": 1.0}, **{step: {"x": 3.0} for step in range(2, 6)}}
    assert service.amendments == 0
    assert service.engine.status.state == "finished"


@pytest.mark.parametrize("boot", ["", "boot"])
def test_a_successor_that_finds_nothing_left_to_do_ends_the_run_for_the_rank_that_was_killed(boot: str) -> None:
    service, killed = Service(), Rank(0, world_size=1, instance="killed", boot=boot, born=START - 5)
    service.take(killed.step(0, {"x": 1.0}))
    service.wait(3, killed)
    service.wait(2)

    successor = Rank(0, world_size=1, instance="successor", clock=service.now, boot=boot, born=service.now)
    service.take(successor.bye())

    assert service.engine.status.state == "finished"


def test_a_twin_that_says_goodbye_ends_nothing_for_the_one_that_lives() -> None:
    service, lives = Service(), Rank(0, world_size=1, instance="lives")
    service.take(lives.step(0, {"x": 1.0}))
    twin = Rank(0, world_size=1, instance="twin")
    service.wait(2, lives)

    service.take(twin.bye())
    service.wait(2, lives)

    assert service.engine.status.state == "running"


def test_a_world_that_shrank_does_not_wait_for_the_ranks_it_had_before() -> None:
    service = Service()
    before = [Rank(rank, world_size=3, attempt=0, instance=f"0-{rank}") for rank in range(3)]
    service.take(*[rank.step(0, {"x": 1.0}) for rank in before], *[rank.bye("killed") for rank in before])

    service.take(
        *[rank.step(1, {"x": 1.0}) + rank.bye() for rank in [Rank(0, world_size=1, attempt=1, instance="1-0")]]
    )

    assert service.engine.status.state == "finished"


def test_a_goodbye_that_overtakes_everything_before_it_ends_nothing_while_that_still_arrives() -> None:
    service = Service()
    ranks = [Rank(rank, world_size=2) for rank in range(2)]
    under_way = [[rank.step(step, {"x": 1.0}, "sum") for rank in ranks] for step in range(60)]
    service.take(*under_way[0])

    service.take(*[rank.bye() for rank in ranks])  # logs have a queue of their own in the Collector
    for batches in under_way[1:]:
        service.wait(1)
        assert service.engine.status.state == "running"
        service.take(*batches)

    assert service.rows() == {step: {"x": 2.0} for step in range(60)}
    assert service.amendments == 0
    assert service.engine.status.state == "finished"


def test_points_that_the_collector_can_bring_minutes_after_the_goodbyes_are_waited_for() -> None:
    service = Service()
    ranks = [Rank(rank, world_size=2) for rank in range(2)]
    under_way = [[rank.step(step, {"x": 1.0}, "sum") for rank in ranks] for step in range(5)]
    service.take(*[rank.bye() for rank in ranks])

    service.wait(144)  # its connection for metrics tries again so late at the latest
    assert service.engine.status.state == "running"
    for batches in under_way:
        service.take(*batches)

    assert service.rows() == {step: {"x": 2.0} for step in range(5)}
    assert service.amendments == 0
    assert service.engine.status.state == "finished"


def test_what_a_goodbye_says_was_sent_and_never_arrives_is_waited_for_as_long_as_the_collector_may_take() -> None:
    service, rank = Service(), Rank(0, world_size=1)
    service.take(rank.step(0, {"x": 1.0}))
    rank.step(1, {"x": 1.0})  # lost on the way

    service.take(rank.bye())
    service.wait(149)
    assert service.engine.status.state == "running"
    service.wait(2)

    assert service.engine.status.state == "finished"


def test_a_lost_request_does_not_give_up_what_is_still_on_its_way_behind_it() -> None:
    service = Service()
    ranks = [Rank(rank, world_size=2) for rank in range(2)]
    service.take(*[rank.step(0, {"x": 1.0}, "sum") for rank in ranks])
    ranks[0].step(1, {"x": 1.0}, "sum")  # lost on the way
    service.take(ranks[1].step(1, {"x": 1.0}, "sum"))
    under_way = [[rank.step(step, {"x": 1.0}, "sum") for rank in ranks] for step in range(2, 40)]
    service.take(*[rank.bye() for rank in ranks])

    for of_first, of_second in under_way:
        service.take(of_first)
        service.wait(1)
        service.take(of_second)

    assert {step: service.rows()[step]["x"] for step in range(2, 40)} == dict.fromkeys(range(2, 40), 2.0)
    assert service.amendments == 0


def test_a_service_that_was_down_for_long_waits_for_its_senders_before_it_calls_a_run_killed() -> None:
    rank = Rank(0)
    service = four_steps([rank])
    service.settings = replace(service.settings, resume_wait_s=60.0)
    service.now += 3600.0
    service.restart()

    service.wait(59)
    assert service.engine.status.state == "running"
    service.take(rank.step(4, {"x": 1.0}), rank.bye())
    assert service.engine.status.state == "finished"


def test_who_does_not_come_back_to_a_service_that_was_down_is_not_waited_for_any_longer() -> None:
    service = four_steps([Rank(0)])
    service.settings = replace(service.settings, resume_wait_s=60.0)
    service.now += 3600.0
    service.restart()

    service.wait(62)

    assert service.engine.status.state == "killed"


@pytest.mark.parametrize("overtakes", [False, True])
def test_of_two_goodbyes_of_a_writer_the_later_one_counts_in_whatever_order_they_arrive(overtakes: bool) -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}))
    goodbyes = [rank.bye()]
    rank.recorded += 3
    goodbyes.append(rank.bye(dropped={"held_up": 3}))

    service.take(*(reversed(goodbyes) if overtakes else goodbyes))
    service.wait(60)

    assert service.engine.status.recorded == 4
    assert service.engine.status.lost == {"held_up": 3}


def test_what_the_end_of_a_killed_job_takes_for_each_rank_does_not_grow_with_their_number() -> None:
    def calls(world: int) -> float:
        service = Service()
        service.take(*[Rank(rank, world_size=world).step(0, {"x": 1.0}) for rank in range(world)])
        service.now += 2 * service.settings.end_silence_s
        with Profile() as profile:
            service.settle()
        assert service.engine.status.state == "killed"
        return sum(entry.callcount for entry in profile.getstats()) / world

    assert calls(400) < 1.5 * calls(100)
