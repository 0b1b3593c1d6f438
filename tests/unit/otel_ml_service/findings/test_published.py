"""What a run says of slow and silent ranks, from what ranks send."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from otel_ml_exporters.records import Image, StepRecord, Table
from otel_ml_service.cli.time_account import finding_lines
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.strategies import Rank, Service
from tests.unit.otel_ml_service.findings.served_ranks import ranks_of, steps


def straggler(service: Service, step: int) -> dict[str, float]:
    return straggler_in(service.rows(own=True)[step])


def straggler_in(row: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix("otel_ml/straggler/"): value for name, value in row.items() if "straggler/" in name}


@pytest.mark.feature("M6", "better", "the rank, the phase and the cost are series, a table and a picture of the run")
def test_a_slow_rank_is_in_the_row_the_table_and_the_picture_and_is_said() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))

    steps(service, ranks, range(10, 16), slow=2)

    assert straggler(service, 9) == {}
    assert straggler(service, 15) == pytest.approx({"cost": 1.0, "level": 2.0, "rank": 2.0, "slowdown": 1.0})
    [table] = [record for record in service.records if isinstance(record, Table)]
    assert table.name == "otel_ml/findings"
    assert dict(zip(table.columns, table.rows[0], strict=True)) == pytest.approx(
        {
            "level": "critical",
            "kind": "slow",
            "rank": 2,
            "phase": "forward",
            "since": 10,
            "until": None,
            "slowdown": 1.0,
            "s per step": 1.0,
            "s in all": 4.0,
            "span of": None,
            "at step": None,
            "span": None,
            "trace": None,
            "place": "rank 2",
            "s saved per step": 1.0,
            "ranks": None,
            "times": None,
            "every": None,
            "amount": None,
            "given": None,
            "others wait": None,
        }
    )
    assert [record.name for record in service.records if isinstance(record, Image)] == ["otel_ml/stragglers"]
    [said] = [notice for notice in service.notices if "slow" in notice]
    assert said.startswith("Rank 2 of role 'trainer' is slow in 'forward' since step 10: 1 s longer than the usual")


def test_of_a_finding_that_is_over_every_command_has_the_same_figures_of_all_its_steps() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(20))
    steps(service, ranks, range(20, 40), slow=2)

    steps(service, ranks, range(40, 60))

    row = newest_row(service)
    assert (row["since"], row["until"]) == (20, 39)
    assert (row["s per step"], row["s in all"], row["s saved per step"]) == pytest.approx((1.0, 20.0, 1.0))
    [table] = [record for record in service.records if isinstance(record, Table)][-1:]
    assert list(finding_lines(table)) == [
        "critical: rank 2 slow in forward, steps 20-39: +1 s a step, 1 s shorter without it"
    ]
    answer = why(facts_of("run", service.records), Question())
    assert "rank 2 was slow in forward, steps 20-39: +1 s a step, 20 s in all" in [one.text for one in answer.evidence]


def test_what_lasts_has_the_figures_of_all_its_steps_though_it_grows() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(20))
    steps(service, ranks, range(20, 30), slow=2)

    steps(service, ranks, range(30, 40), slow=2, by=3.0)
    service.take(*[rank.bye("finished") for rank in ranks])
    service.wait(700)

    row = newest_row(service)
    assert (row["since"], row["until"]) == (20, None)
    assert (row["s per step"], row["s in all"]) == pytest.approx((2.0, 40.0))
    assert row["s saved per step"] == pytest.approx(2.0, rel=0.15)  # what a rank loses is smoothed


def test_a_stage_with_more_work_is_told_and_no_rank_is_named() -> None:
    service = Service()
    ranks = [Rank(rank, world_size=4, topology=(("pp", rank % 2, 2),)) for rank in range(4)]

    for step in range(20):
        for one in ranks:
            stage = one.writer.rank % 2
            times = {"time/compute": 1.0 + 0.5 * stage, "time/recv": 0.6 - 0.5 * stage}
            service.take(one.step(step, times, "sum>max"))
        service.wait(1, *ranks)
        if step == 10:
            service.restart()

    [finding] = service.engine.findings
    assert (finding["kind"], finding["place"], finding["rank"], finding["since"]) == ("stage", "stage 1", None, 0)
    [table] = [record for record in service.records if isinstance(record, Table)]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["kind"], row["place"], row["rank"], row["s per step"]) == ("stage", "stage 1", None, pytest.approx(0.5))
    [said] = service.notices
    assert said.startswith(
        "Stage 1 of role 'trainer' has 1.5 × the work of the other stages since step 0: 500 ms a step more; "
        "without it a step is 250 ms shorter (critical)."
    )
    assert straggler(service, 19) == {}


def test_a_host_whose_ranks_are_all_slow_is_told_once_with_its_ranks() -> None:
    service = Service()
    ranks = [Rank(rank, world_size=8, host=f"n{rank // 2}") for rank in range(8)]

    for step in range(40):
        for one in ranks:
            is_slow = one.writer.host == "n2" and 5 <= step < 30
            service.take(one.step(step, {"time/forward": 1.3 if is_slow else 1.0}, "sum>max"))
        service.wait(1, *ranks)
        if step == 15:
            service.restart()

    [finding] = service.engine.findings
    assert (finding["place"], finding["rank"], finding["ranks"]) == ("host n2", None, (4, 5))
    assert (finding["since"], finding["last"], finding["is_over"]) == (5, 29, True)
    begins, ends = service.notices
    assert begins.startswith(
        "Host n2 of role 'trainer' is slow in 'forward' since step 5: 300 ms longer than the usual"
    )
    assert "Slow are ranks 4, 5." in begins
    assert ends.startswith("Host n2 of role 'trainer' is no longer slow in 'forward': from step 5 to 29, ")
    row = newest_row(service)
    assert (row["place"], row["rank"], row["ranks"], row["until"]) == ("host n2", None, "4 5", 29)
    assert (row["s per step"], row["s saved per step"]) == pytest.approx((0.3, 0.3))


def test_checkpoints_every_ten_steps_are_told_once_and_when_there_are_no_more() -> None:
    service, ranks = Service(), ranks_of(4)

    for step in range(100):
        times = {"time/forward": 1.0, "time/backward": 2.0}
        if step % 10 == 9 and step < 60:
            times["time/checkpoint"] = 3.0
        service.take(*(one.step(step, times, "sum>max") for one in ranks))
        service.wait(1, *ranks)
        if step == 40:
            service.restart()

    [finding] = service.engine.findings
    assert (finding["kind"], finding["place"], finding["phase"]) == ("pause", "nobody", "checkpoint")
    assert (finding["since"], finding["last"], finding["is_over"]) == (9, 59, True)
    begins, ends = service.notices
    assert begins.startswith(
        "Role 'trainer' pauses in 'checkpoint' every 10 steps since step 9: 3 s each, 409 ms a step on average, "
        "+13.6 % (warning). Nobody is slow."
    )
    assert ends.startswith("Role 'trainer' no longer pauses in 'checkpoint': ")
    assert newest_row(service)["kind"] == "pause"
    assert straggler(service, 50) == {}


def newest_row(service: Service) -> dict[str, object]:
    table = [record for record in service.records if isinstance(record, Table)][-1]
    return dict(zip(table.columns, table.rows[0], strict=True))


def test_what_a_timer_was_declared_to_measure_counts_more_than_its_name() -> None:
    service, ranks = Service(), ranks_of(4)
    [beat] = ranks[3].inside(0)
    service.take([beat._replace(kinds=(("fetch", "wait"), ("sync_weights", "work")))])  # type: ignore[union-attr]

    for step in range(20):
        if step == 5:
            service.restart()
        for one in ranks:
            times = {"time/fetch": 2.0 if one.writer.rank == 1 else 1.0, "time/forward": 1.0}
            times["time/sync_weights"] = 2.0 if one.writer.rank == 2 else 1.0
            service.take(one.step(step, times, "sum>max"))
        service.wait(1, *ranks)

    [finding] = service.engine.findings
    assert (finding["rank"], finding["phase"]) == (2, "sync_weights")


@pytest.mark.parametrize(("name", "reduction"), [("time/remaining", "last>max"), ("time/epoch", "max")])
def test_what_remains_is_no_phase_of_a_step(name: str, reduction: str) -> None:
    service, ranks = Service(), ranks_of(4)

    for step in range(20):
        for one in ranks:
            estimate = one.record(step, {name: 100.0 if one.writer.rank == 1 else 10.0}, reduction)
            service.take(estimate, one.step(step, {"time/forward": 1.0}, "sum>max"))
        service.wait(1, *ranks)

    assert straggler(service, 19) == {}
    assert [notice for notice in service.notices if "slow" in notice] == []


def test_when_it_is_over_the_row_says_zero_once_and_a_person_is_told_the_price() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))
    steps(service, ranks, range(10, 20), slow=2)

    steps(service, ranks, range(20, 34))

    ended = next(step for step in range(20, 34) if straggler(service, step) == {"cost": 0.0, "level": 0.0})
    assert straggler(service, ended + 1) == {}
    assert "step 10 to" in service.notices[-1]
    assert "10 s longer than the usual rank in all" in service.notices[-1]


def test_a_level_that_goes_up_and_down_is_told_once() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))

    for start, by in ((10, 0.3), (20, 0.9), (30, 0.2), (50, 0.9), (60, 0.2)):
        steps(service, ranks, range(start, start + 10), slow=2, by=by)

    levels = [notice.rpartition(" (otel-ml")[0].rpartition("(")[2] for notice in service.notices]
    assert levels == ["warning).", "critical)."]


def test_what_is_open_when_the_run_ends_is_in_its_last_table_with_all_it_cost() -> None:
    service, ranks = Service(), ranks_of(2)
    steps(service, ranks, range(12))
    steps(service, ranks, range(12, 19), slow=1)

    service.take(*[rank.bye() for rank in ranks])
    service.settle()

    last = [record for record in service.records if isinstance(record, Table)][-1]
    assert last.rows[0][last.columns.index("s in all")] == pytest.approx(7.0)


def test_a_pause_in_the_last_step_of_a_run_is_in_its_last_table() -> None:
    service, ranks = Service(), ranks_of(4)
    for step in range(50):
        times = {"time/forward": 1.0, "time/backward": 2.0, **({"time/validate": 3.0} if step % 10 == 9 else {})}
        service.take(*(one.step(step, times, "sum>max") for one in ranks))
        service.wait(1, *ranks)

    service.take(*[rank.bye() for rank in ranks])
    service.settle()

    row = newest_row(service)
    assert (row["kind"], row["phase"], row["since"]) == ("pause", "validate", 9)
    assert (row["times"], row["s in all"]) == (5, pytest.approx(15.0))


def test_a_finding_survives_a_restart_of_the_service() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))
    steps(service, ranks, range(10, 16), slow=2)

    service.restart()
    steps(service, ranks, range(16, 20), slow=2)

    assert straggler(service, 19)["rank"] == 2.0
    assert sum("is slow" in notice for notice in service.notices) == 1


def test_one_rank_alone_has_nobody_to_be_compared_with() -> None:
    service, ranks = Service(), ranks_of(1)

    steps(service, ranks, range(30), slow=0)

    assert {type(record) for record in service.records} == {StepRecord}
    assert straggler(service, 29) == {}


def test_another_attempt_begins_without_suspicion() -> None:
    service = Service()
    first = [Rank(rank, world_size=3, instance=f"a{rank}", attempt=0) for rank in range(3)]
    steps(service, first, range(20), slow=1)
    second = [Rank(rank, world_size=3, instance=f"b{rank}", attempt=1, clock=service.now) for rank in range(3)]

    steps(service, second, range(10, 16))

    assert straggler_in(service.steps()[-1].values) == {}
    assert [finding["is_over"] for finding in service.engine.findings] == [True]


def test_what_was_found_in_steps_that_another_attempt_does_again_is_not_so_anymore() -> None:
    service = Service()
    first = [Rank(rank, world_size=3, instance=f"a{rank}", attempt=0) for rank in range(3)]
    steps(service, first, range(5))
    steps(service, first, range(5, 30), slow=1)
    steps(service, first, range(30, 50))
    steps(service, first, range(50, 70), slow=2)
    second = [Rank(rank, world_size=3, instance=f"b{rank}", attempt=1, clock=service.now) for rank in range(3)]

    steps(service, second, range(20, 25))
    so_far = [(one["rank"], one["since"], one["last"]) for one in service.engine.findings]
    steps(service, second, range(25, 60))

    assert so_far[0] == (1, 5, 19)
    assert [one[:2] for one in so_far[1:]] == [(2, 50)]
    [left] = service.engine.findings
    assert (left["rank"], left["since"], left["last"], left["cost_s"]) == (1, 5, 19, pytest.approx(15.0))


def test_of_many_ranks_that_become_slow_at_once_the_first_ones_are_named_and_the_others_counted() -> None:
    service, ranks = Service(), ranks_of(40)
    slow = [rank for rank in range(40) if rank % 4 == 1]
    for step in range(16):
        for one in ranks:
            taken = 2.0 + 0.01 * one.writer.rank if one.writer.rank in slow and step >= 10 else 1.0
            service.take(one.step(step, {"time/forward": taken, "time/backward": 1.0}, "sum>max"))
        service.wait(1, *ranks)

    assert [said.partition(" of")[0] for said in service.notices] == [
        *[f"Rank {rank}" for rank in slow[:8]],
        "2 more ranks",
    ]
