"""recorded = delivered + superseded + on its way + lost: what a writer says it sent, beside what arrived (ADR 0031)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_ml_exporters.records import Summary
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.loss_account import NEVER_ARRIVED
from otel_ml_service.aggregation.observation import Fragment, Observation
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import Rank, Service, split


def final_values(service: Service) -> dict[str, float]:
    """Return the final values as a backend has them: of each name the last one."""
    told = (record.values for record in service.records if isinstance(record, Summary))
    return {name: value for values in told for name, value in values.items()}


def lost(service: Service) -> dict[str, int]:
    return dict(service.engine.status.lost)


def test_what_a_hop_acknowledged_and_dropped_is_lost_and_named_while_the_run_goes_on() -> None:
    service, rank = Service(), Rank(0)
    for step in range(4):
        service.take(rank.step(step, {"loss": 1.0, "grad": 2.0}))
    service.take(rank.says_totals(3))
    for step in range(4, 9):
        rank.step(step, {"loss": 1.0, "grad": 2.0})  # never arrives
    service.take(rank.step(9, {"loss": 1.0, "grad": 2.0}), rank.says_totals(9))

    assert lost(service) == {}, "for the allowed lateness it is on its way"
    service.wait(11, rank)

    assert lost(service) == {NEVER_ARRIVED: 10}
    [notice] = [notice for notice in service.notices if "do not arrive" in notice]
    assert "rank 0 of trainer" in notice
    assert "steps 3 to 9 of axis 'step'" in notice
    assert service.engine.status.recorded == 20


def test_that_values_do_not_arrive_is_said_once_for_all_ranks() -> None:
    service, ranks = Service(), [Rank(0), Rank(1)]
    for number, rank in enumerate(ranks):
        service.take(rank.step(0, {"loss": 1.0}))
        rank.step(1, {"loss": 1.0})  # never arrives
        service.take(rank.step(2, {"loss": 1.0}), rank.says_totals(2))
        service.wait(11 + number, *ranks)

    assert lost(service) == {NEVER_ARRIVED: 2}
    assert len([notice for notice in service.notices if "do not arrive" in notice]) == 1


@pytest.mark.parametrize(("ranks", "others"), [(5, ""), (7, " and 2 others")])
def test_of_many_ranks_whose_values_never_arrived_five_are_named(ranks: int, others: str) -> None:
    service, all_ranks = Service(), [Rank(rank) for rank in range(ranks)]
    for rank in all_ranks:
        service.take(rank.step(0, {"loss": 1.0}))
        rank.step(1, {"loss": 1.0})  # never arrives
        service.take(rank.bye())
    service.wait(200)

    [notice] = [notice for notice in service.notices if "never arrived" in notice]
    named = ", ".join(f"rank {rank} of trainer" for rank in range(5))
    assert f"values of {named}{others} never arrived" in notice


def test_what_comes_after_all_is_not_lost() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}), rank.says_totals(0))
    held_back = rank.step(1, {"x": [1.0, 2.0, 3.0]})
    service.take(rank.step(2, {"x": 1.0}), rank.says_totals(2))
    service.wait(11, rank)
    assert lost(service) == {NEVER_ARRIVED: 3}

    service.take(held_back)

    assert lost(service) == {}


def test_a_run_that_ends_says_how_many_values_of_whom_never_arrived() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    for step in range(5):
        service.take(*[rank.step(step, {"x": 1.0}) for rank in ranks if (rank.writer.rank, step) != (1, 3)])
    rank = ranks[1]
    rank.step(3, {"x": 1.0})
    service.take(ranks[0].bye(), rank.bye())
    service.wait(400)

    assert service.engine.status.state == "finished"
    assert lost(service) == {NEVER_ARRIVED: 1}
    [summary] = [record.values for record in service.records if isinstance(record, Summary)]
    assert summary["otel_ml/dropped/never_arrived"] == 1
    assert summary["otel_ml/recorded"] == 10
    assert any("1 of 5 values of rank 1 of trainer never arrived" in notice for notice in service.notices)


@pytest.mark.parametrize("goes_down", ["never", "when it has ended", "when it goes on"])
def test_what_arrives_after_the_end_is_taken_back_from_the_final_values(goes_down: str) -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]
    service.take(ranks[0].step(0, {"x": 1.0}))
    held_back = ranks[0].step(1, {"x": [1.0, 2.0, 3.0]}) + ranks[0].event("ml.text", "hello")
    service.take(ranks[0].step(2, {"x": 1.0}), ranks[0].bye())
    service.wait(400)
    gone = ("dropped/never_arrived", "dropped/events_never_arrived", "ranks_unheard")
    assert [final_values(service)[f"otel_ml/{name}"] for name in gone] == [3.0, 1.0, 1.0]

    if goes_down == "when it has ended":
        service.restart()
    service.take(held_back, ranks[1].step(0, {"x": 1.0}))
    if goes_down == "when it goes on":
        assert service.engine.status.state == "running"
        service.restart()
    service.take(ranks[1].bye())
    service.wait(400)

    assert lost(service) == {}
    assert [final_values(service)[f"otel_ml/{name}"] for name in gone] == [0.0, 0.0, 0.0]
    service.take(ranks[0].event("ml.text", "again"))
    service.wait(400)
    *_, newest = [record.values for record in service.records if isinstance(record, Summary)]
    assert newest.keys() == {"otel_ml/recorded"}, "what was taken back once is not told again"


def test_a_run_that_ends_says_what_was_done_again_and_came_too_late_in_values_of_the_program() -> None:
    service, rank = Service(EngineSettings(retained_steps=3, closed_bytes=0)), Rank(0)
    for step in range(6):
        service.take(rank.record(step, {"x": [1.0] * 10}), rank.done(step))
    service.wait(20)
    again = Rank(0, instance="again", clock=service.now)

    service.take(*[again.record(step, {"x": [2.0] * 10}) + again.done(step) for step in range(4, 10)])
    service.wait(3, again)
    service.take(rank.record(5, {"x": [9.0] * 7}), again.record(4, {"x": [9.0] * 5}))
    service.take(again.bye())
    service.wait(400)

    *_, summary = [record.values for record in service.records if isinstance(record, Summary)]
    account = service.engine.status
    assert (account.superseded, account.lost["too_late"]) == (7, 5)
    assert (summary["otel_ml/superseded"], summary["otel_ml/too_late"]) == (7.0, 5.0)


def test_what_a_writer_knows_to_be_lost_has_its_own_reason_and_counts_once() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}))
    rank.record(1, {"x": [1.0, 2.0], "y": [1.0, 2.0]})  # two points, four values: dropped by its spool
    rank.record(2, {"x": 1.0})  # refused by a receiver
    rank.record(3, {"x": 1.0})  # dropped by a hop
    dropped = {"spool_full": 2, "HTTP 403": 1, "bad_value": 5}
    service.take(rank.bye(dropped=dropped, given_up={"spool_full": 2, "HTTP 403": 1}))
    service.wait(400)

    counts = lost(service)
    assert counts.pop("bad_value") == 5
    assert sum(counts.values()) == 6
    assert counts.keys() == {"spool_full", "HTTP 403", NEVER_ARRIVED}


def test_what_a_receiver_refused_and_yet_passed_on_is_not_lost() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}), rank.bye(dropped={"HTTP 400": 1}, given_up={"HTTP 400": 1}))

    assert lost(service) == {}


def test_a_writer_that_says_no_values_is_held_to_its_points() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}))
    rank.record(1, {"x": [1.0, 2.0]})
    service.take(rank.bye(values=None, events=None))
    service.wait(400)

    assert lost(service) == {NEVER_ARRIVED: 1}


def test_of_a_killed_process_that_never_said_its_totals_it_is_said_that_something_is_missing() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}))
    rank.step(1, {"x": 1.0})  # never arrives
    service.take(rank.step(2, {"x": 1.0}))
    service.wait(400)

    assert service.engine.status.state == "killed"
    [notice] = [notice for notice in service.notices if "never arrived" in notice]
    assert "2 messages of rank 0 of trainer never arrived" in notice  # its points, and that it is done with the step


@pytest.mark.parametrize("says_goodbye", [True, False])
def test_nobody_in_between_is_blamed_for_what_the_full_spool_of_a_process_may_have_dropped(says_goodbye: bool) -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}))
    rank.record(1, {"x": 1.0})  # never arrives
    rank.event("ml.text", "never arrives")
    service.take(rank.step(2, {"x": 1.0}), rank.bye() if says_goodbye else rank.says_totals(2))
    service.wait(11, *([] if says_goodbye else [rank]))
    service.wait(400)

    notices = [notice for notice in service.notices if "never arrived" in notice or "do not arrive" in notice]
    assert len(notices) == (2 if says_goodbye else 4)
    assert all(("spool" in notice) is not says_goodbye for notice in notices)


def test_a_single_message_that_is_missing_is_one() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}))
    rank.event("ml.text", "never arrives")
    service.take(rank.step(1, {"x": 1.0}))
    service.wait(400)

    [notice] = [notice for notice in service.notices if "never arrived" in notice]
    assert notice.startswith("1 message of rank 0 of trainer never arrived")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_killed_process_of_which_all_arrived_that_it_sent_is_missed_nothing(restarts: bool) -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}), rank.says_totals(0), rank.step(1, {"x": 1.0}), rank.event("ml.text", "x"))
    if restarts:
        service.restart()
    service.take(rank.step(2, {"x": 1.0}))
    service.wait(400)

    assert not any("never arrived" in notice for notice in service.notices)


@pytest.mark.parametrize("overtaken", [False, True])
def test_what_a_killed_process_recorded_is_what_arrived_and_what_is_lost(overtaken: bool) -> None:
    service, rank = Service(), Rank(0)
    first = rank.step(0, {"x": 1.0})
    rank.record(1, {"x": [1.0, 2.0]})  # never arrives
    said = rank.step(2, {"x": 1.0}) + rank.says_totals(2)
    since = [sent for step in range(3, 6) for sent in rank.step(step, {"x": 1.0})]  # no totals count it
    service.take(first, *((since, said) if overtaken else (said, since)))

    assert service.engine.status.recorded == 7
    service.wait(400)

    assert service.engine.status.state == "killed"
    assert lost(service) == {NEVER_ARRIVED: 2}
    assert service.engine.status.recorded == 7
    assert final_values(service)["otel_ml/recorded"] == 7


def test_what_came_after_the_totals_in_one_request_hides_nothing_that_was_lost_before_them() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.step(0, {"x": 1.0}))
    rank.record(1, {"x": 1.0})  # never arrives
    service.take(rank.done(1))
    service.wait(11, rank)  # nor is it waited for
    service.take(rank.says_totals(1), rank.step(2, {"x": 1.0}))
    service.wait(400)  # killed

    assert lost(service) == {NEVER_ARRIVED: 1}


def test_what_a_goodbye_says_that_its_writer_gave_up_is_blamed_on_nobody_before_it_is_read() -> None:
    service, rank = Service(), Rank(0)
    rank.record(0, {"x": 1.0})  # dropped by its spool
    dropped = {"spool_full": 1}
    service.take(rank.step(1, {"x": 1.0}))
    service.wait(11, rank)
    service.take(rank.bye(dropped=dropped, given_up=dropped))
    service.wait(400)

    assert lost(service) == {"spool_full": 1}
    assert not any("arrive" in notice for notice in service.notices)


@pytest.mark.parametrize("rejected", [1, 0])
def test_points_that_the_service_rejected_itself_are_blamed_on_nobody_in_between(rejected: int) -> None:
    service, rank = Service(), Rank(0)
    rank.step(0, {"x": 1.0})
    service.take(rank.step(1, {"x": 1.0}), rank.says_totals(1))
    service.engine.note_rejected(rejected)
    service.wait(11, rank)

    assert lost(service) == {NEVER_ARRIVED: 1}
    assert any("do not arrive" in notice for notice in service.notices) == (not rejected)
    service.take(rank.bye())
    service.wait(400)
    assert any("never arrived" in notice for notice in service.notices) == (not rejected)


def test_what_is_still_waited_for_is_not_held_against_what_the_service_rejected() -> None:
    service, rank = Service(), Rank(0)
    rank.step(0, {"x": 1.0})  # never arrives
    service.take(rank.step(1, {"x": 1.0}), rank.says_totals(1))
    service.engine.note_rejected(1)
    service.wait(11, rank)
    rank.step(2, {"x": 1.0})  # neither, but nobody knows that yet

    service.take(rank.step(3, {"x": 1.0}), rank.says_totals(3))
    service.wait(1, rank)
    assert not any("do not arrive" in notice for notice in service.notices)

    service.wait(11, rank)
    assert any("do not arrive" in notice for notice in service.notices)


@pytest.mark.parametrize("reduce", ["last", "first", "last,first", "mean,last", "p50,last", "sum", "last>mean"])
@pytest.mark.parametrize("records", [[1.0], [1.0, 2.0, 3.0]])
def test_a_value_counts_once_whatever_points_it_travels_in(reduce: str, records: list[float]) -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.record(0, {"x": records}, reduce), rank.done(0), rank.bye())
    service.wait(400)

    assert lost(service) == {}


def test_an_engine_that_remembers_nothing_calls_nothing_lost_of_what_arrived_before_it() -> None:
    service, rank = Service(), Rank(0)
    for step in range(5):
        service.take(rank.step(step, {"x": 1.0}))
    service.engine = Engine("exp", service.settings, seq=40)  # what was remembered could not be read
    service.take(rank.step(5, {"x": 1.0}), rank.says_totals(5))
    rank.record(6, {"x": 1.0})  # never arrives
    service.take(rank.step(7, {"x": 1.0}), rank.bye())
    service.wait(400)

    assert lost(service) == {NEVER_ARRIVED: 1}


@st.composite
def journeys(draw: st.DrawFn) -> tuple[list[Observation], int, Rank]:
    """Draw what arrives of a writer, in which order, and how many values never do."""
    rank, sent = Rank(0), []
    planted = 0
    for step in range(draw(st.integers(1, 6))):
        for name in "abc":
            records = [float(n) for n in range(draw(st.integers(1, 3)))]
            reduce = draw(st.sampled_from(["mean", "last", "mean,last", "sum>max", "p90"]))
            [fragment] = rank.record(step, {f"{name}-{reduce}": records, f"{name}2-{reduce}": records}, reduce)
            assert isinstance(fragment, Fragment)
            fate = draw(st.sampled_from(["arrives", "arrives", "lost", "half"]))
            pieces = split(fragment, len(fragment.partials.series) // 2)
            sent += {"arrives": [fragment], "lost": [], "half": pieces[:1]}[fate]
            each = 1 if reduce == "last" else len(records)
            planted += {"arrives": 0, "lost": 2, "half": 1}[fate] * each
        if draw(st.booleans()):
            sent += rank.done(step)
        if draw(st.booleans()):
            sent += draw(st.sampled_from([[], rank.says_totals(step)]))
    sent += draw(st.lists(st.sampled_from(sent), max_size=4)) if sent else []
    return draw(st.permutations(sent)), planted, rank


@given(journeys(), st.integers(1, 9), st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_account_says_what_never_arrived_to_the_value_in_whatever_order_the_rest_does(
    journey: tuple[list[Observation], int, Rank], batch: int, restarts: bool
) -> None:
    arrived, planted, rank = journey
    service = Service()
    for start in range(0, len(arrived), batch):
        service.take(arrived[start : start + batch])
        if restarts:
            service.restart()
        assert service.engine.status.lost.get(NEVER_ARRIVED, 0) <= planted
    service.take(rank.bye())
    service.wait(400)

    assert service.engine.status.recorded == rank.recorded
    assert service.engine.status.lost.get(NEVER_ARRIVED, 0) == planted
