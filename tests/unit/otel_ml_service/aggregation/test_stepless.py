"""Records without a step: one place for those of all ranks, whatever arrives first (ADR 0034)."""

from __future__ import annotations

from itertools import permutations

import pytest

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.stepless import NO_STEP
from tests.recount import kept_sums, recounted
from tests.strategies import START, Rank, Service


@pytest.mark.parametrize("restart", [False, True], ids=["", "the service starts again"])
@pytest.mark.parametrize("lag", [0, 1, 5, 40])
def test_what_ranks_record_before_their_first_step_meets_in_it(lag: int, restart: bool) -> None:
    service, first, second = Service(), Rank(0), Rank(1)
    service.take(first.record(None, {"v": 0.0}))
    if restart:
        service.restart()
    service.take(first.step(0, {"x": 1.0}), first.step(1, {"x": 1.0}))

    service.wait(lag, first)
    second.clock = service.now
    service.take(second.record(None, {"v": 1.0}))
    service.wait(1, first, second)
    if restart:
        service.restart()
    service.take(second.step(0, {"x": 3.0}), second.step(1, {"x": 3.0}))
    service.take(first.bye(), second.bye())
    service.wait(60)

    assert service.rows()[0] == {"v": 0.5, "x": 2.0}
    assert "v" not in service.rows()[1]
    assert service.rows(axis="time") == {}
    assert not [notice for notice in service.notices if NO_STEP in notice]


def test_the_first_step_of_a_job_that_goes_on_is_not_0() -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.record(None, {"v": 1.0}), rank.step(60, {"x": 1.0}), rank.step(61, {"x": 1.0}), rank.bye())

    assert service.rows() == {60: {"v": 1.0, "x": 1.0}, 61: {"x": 1.0}}


def test_a_first_step_that_takes_long_is_waited_for_while_the_process_says_that_it_is_in_it() -> None:
    service, rank = Service(), Rank(0)
    service.take(rank.record(None, {"v": 1.0}))
    for _ in range(300):
        service.wait(1)
        rank.clock = service.now
        service.take(rank.inside(0))

    service.take(rank.step(0, {"x": 1.0}), rank.step(1, {"x": 1.0}), rank.bye())

    assert service.rows()[0] == {"v": 1.0, "x": 1.0}


def test_what_arrives_late_without_a_step_belongs_to_the_step_that_its_process_is_in() -> None:
    service, rank = Service(), Rank(0)
    before = rank.record(None, {"v": 1.0})

    service.take(rank.step(0, {"x": 1.0}), before, rank.step(1, {"x": 1.0}), rank.bye())

    assert service.rows() == {0: {"v": 1.0, "x": 1.0}, 1: {"x": 1.0}}


def job() -> tuple[Rank, list[list[Observation]]]:
    """Return a trainer, and what it and a child without steps send: the child records in the middle of each step."""
    trainer, child = Rank(0), Rank(0, instance="child", parent="trainer-0")
    sent = []
    for step in range(3):
        begins = START + 10 * step
        child.clock = begins + 5
        trainer.clock = begins + 9
        sent.append(trainer.step(step, {"x": float(step)}))
        sent.append(child.record(None, {"v": float(step)}))
    trainer.clock = child.clock = START + 30
    sent.append(trainer.step(3, {"x": 3.0}))
    return trainer, sent


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_what_a_process_without_steps_records_is_in_the_row_of_that_time_whatever_arrives_first(
    order: tuple[int, ...],
) -> None:
    trainer, sent = job()
    service = Service()
    rows, values = sent[0::2], sent[1::2]

    service.take(*rows[: order[0]], *(values[place] for place in order), *rows[order[0] :], trainer.bye())
    service.wait(60)

    assert {step: row.get("v") for step, row in service.rows().items()} == {0: 0.0, 1: 1.0, 2: 2.0, 3: None}


@pytest.mark.parametrize("restart", [False, True])
def test_a_row_that_came_late_hides_no_row_from_what_is_recorded_without_steps(restart: bool) -> None:
    service, trainer, child = Service(), Rank(0), Rank(1, parent="trainer-0")
    for step in (0, 2, 3, 4, 5, 1):
        trainer.clock = START + 10 * step
        service.take(trainer.step(step, {"x": 1.0}))
    if restart:
        service.restart()

    child.clock = START + 35
    service.take(child.record(None, {"v": 1.0}), trainer.bye(), child.bye())
    service.wait(60)

    assert [step for step, row in service.rows().items() if "v" in row] == [4]


def test_a_rank_that_never_sets_a_step_is_in_the_rows_of_those_that_do() -> None:
    service, leader, follower = Service(), Rank(0), Rank(1)
    for step in range(60):
        service.wait(1)
        leader.clock = follower.clock = service.now
        service.take(leader.step(step, {"x": 1.0}), follower.record(None, {"v": 1.0}))
    service.take(leader.bye(), follower.bye())
    service.wait(60)

    rows = service.rows()
    assert all("v" in rows[step] for step in range(15, 60)), "a process that has no step is known after a while"
    assert service.rows(axis="time") == {}


def test_without_a_step_clock_records_go_to_windows_of_a_second_and_that_is_said_once() -> None:
    service, rank = Service(), Rank(0)

    for second in (0, 0, 1, 5):
        service.now = rank.clock = START + second
        service.take(rank.record(None, {"x": float(second)}))
    service.take(rank.bye())

    assert service.rows(axis="time") == {0: {"x": 0.0}, 1: {"x": 1.0}, 5: {"x": 5.0}}
    assert service.notices == [f"{NO_STEP} (otel-ml explain no-step)"]


def test_a_process_that_never_has_a_step_is_seen_while_it_runs() -> None:
    service, ranks = Service(), [Rank(0), Rank(1)]
    for _ in range(80):
        service.wait(1)
        for rank in ranks:
            rank.clock = service.now
            service.take(rank.record(None, {"x": float(rank.writer.rank)}))

    windows = service.rows(axis="time")
    assert len(windows) >= 60
    assert {row["x"] for row in windows.values()} == {0.5}
    assert service.rows() == {}


def test_a_process_that_says_how_it_reduces_and_never_has_a_step_is_seen_while_it_runs() -> None:
    service, rank = Service(), Rank(0)
    service.take([beat._replace(declared=(("x", Reduction.parse("max")),)) for beat in rank.waits()])  # type: ignore[union-attr]
    for _ in range(80):
        service.wait(1)
        rank.clock = service.now
        service.take(rank.record(None, {"x": 1.0}, "max"))

    assert len(service.rows(axis="time")) >= 60


def test_what_belongs_to_a_step_of_which_no_fold_state_is_left_comes_too_late_and_changes_nothing() -> None:
    service, trainer, late = Service(EngineSettings(retained_steps=1, closed_bytes=0)), Rank(0), Rank(1)
    for step in range(6):
        service.take(trainer.step(step, {"x": 1.0}))

    service.take(late.record(None, {"x": 5.0, "new": 2.0}), late.step(0, {"y": 1.0}), trainer.bye(), late.bye())
    service.wait(60)

    assert service.rows()[0] == {"x": 1.0, "new": 2.0, "y": 1.0}
    assert service.engine.status.lost == {"too_late": 1}
    assert [(sent.step, sent.partials.series[0].name) for outcome in service.outcomes for sent in outcome.too_late] == [
        (0, "x")
    ]


def test_what_waits_for_a_step_is_bounded_in_memory() -> None:
    service, rank = Service(EngineSettings(open_bytes=100_000)), Rank(0)

    for _ in range(400):
        service.take(rank.record(None, {"x": 1.0}))
    service.wait(15)

    assert service.rows(axis="time") == {0: {"x": 1.0}}


def test_what_waits_for_a_row_that_never_comes_is_given_up_where_memory_is_bounded() -> None:
    service, rank = Service(EngineSettings(open_bytes=2_000)), Rank(0)
    service.take(rank.record(0, {"loss": 1.0}))  # a first step that does not end
    beside = Rank(1, instance="child", parent="trainer-0")
    service.take(*[beside.record(None, {f"memory{n}": 1.0}) for n in range(20)])

    assert service.engine.status.open_bytes <= 2_000
    service.take(rank.done(0), beside.bye(), rank.bye())
    kept = {name for axis in ("step", "time") for row in service.rows(axis=axis).values() for name in row}
    assert kept == {"loss", *(f"memory{n}" for n in range(20))}


def test_what_comes_after_the_end_for_a_window_that_was_filled_at_the_end_is_added_to_it() -> None:
    service, first, second = Service(), Rank(0), Rank(1)
    service.take(first.record(None, {"v": 1.0}, "sum"), first.bye())
    service.wait(5)
    assert service.engine.status.state == "finished"
    service.take(second.record(None, {"v": 2.0}, "sum"))
    service.wait(200, second)
    service.take(second.bye())
    service.wait(5)

    assert service.rows(axis="time") == {0: {"v": 3.0}}
    assert kept_sums(service.engine) == recounted(service.engine)


@pytest.mark.parametrize("at", [0.5, 2.5, 9.0])
def test_where_too_much_waits_for_a_step_it_goes_beside_the_first_row_that_is_newer_or_the_last(at: float) -> None:
    service, trainer, monitor = Service(EngineSettings(open_bytes=20_000)), Rank(0), Rank(5)
    for step in range(4):
        service.now += 1.0
        trainer.clock = service.now
        service.take(trainer.step(step, {"x": 1.0}))

    monitor.clock = START + at
    for number in range(100):
        service.take(monitor.record(None, {f"m{number % 10}": 1.0}, "sum"))

    assert service.engine.status.counts.open == 0
    service.wait(20, trainer, monitor)
    found = {step: sum(row.values()) - row["x"] for step, row in service.rows().items()}
    assert {step: amount for step, amount in found.items() if amount} == {min(int(at), 3): 100.0}
    assert service.rows(axis="time") == {}
