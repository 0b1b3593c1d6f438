"""What a run says of slow and silent ranks, from what ranks send."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from otel_ml_exporters.records import Image, Span, StepRecord, Table
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.newest_spans import NewestSpans
from otel_ml_service.aggregation.observation import Spans
from otel_ml_service.aggregation.writer_state import WriterState
from otel_ml_service.cli.time_account import finding_lines
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.strategies import Rank, Service


def ranks_of(count: int) -> list[Rank]:
    return [Rank(rank, world_size=count) for rank in range(count)]


def steps(service: Service, ranks: list[Rank], numbers: range, *, slow: int | None = None, by: float = 1.0) -> None:
    for step in numbers:
        taken = [1.0 + (by if rank == slow else 0.0) for rank in range(len(ranks))]
        sent = [
            one.step(step, {"time/forward": seconds, "loss": 0.5}, "sum>max")
            for one, seconds in zip(ranks, taken, strict=True)
        ]
        service.take(*sent)
        service.wait(1, *ranks)


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
        "Stage 1 of role 'trainer' has 1.5 × the work of the other stages since step 0: 0.5 s a step more; "
        "without it a step is 0.25 s shorter (critical)."
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
    assert begins.startswith("Host n2 of role 'trainer' is slow in 'forward' since step 5: 0.3 s longer than the usual")
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
        "Role 'trainer' pauses in 'checkpoint' every 10 steps since step 9: 3 s each, 0.409 s a step on average, +14% "
        "(warning). Nobody is slow."
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


def test_a_silent_rank_is_a_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))

    for step in range(8, 12):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    [table] = [record for record in service.records if isinstance(record, Table)]
    assert table.rows[0][:5] == ("warning", "silent", 2, "", 8)
    [finding] = service.engine.findings
    assert (finding["kind"], finding["rank"], finding["level"], finding["is_over"]) == ("silent", 2, "critical", False)


def test_a_rank_that_hangs_in_the_middle_of_a_step_is_a_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))

    service.take(ranks[2].record(8, {"time/data": 1.0}, "sum>max"))
    for step in range(8, 12):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    [finding] = service.engine.findings
    assert (finding["kind"], finding["rank"], finding["since"], finding["is_over"]) == ("silent", 2, 9, False)
    assert finding["level"] == "critical"


def test_a_rank_that_hung_in_a_step_and_goes_on_is_heard_again() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))
    service.take(ranks[2].record(8, {"time/data": 1.0}, "sum>max"))
    for step in range(8, 11):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    steps(service, ranks, range(11, 16))

    [finding] = service.engine.findings
    assert (finding["since"], finding["last"], finding["is_over"]) == (9, 10, True)


def test_a_rank_that_left_in_a_step_and_said_goodbye_is_no_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))
    service.take(ranks[2].record(8, {"time/data": 1.0}, "sum>max"), ranks[2].bye())
    for step in range(8, 12):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    assert service.engine.findings == []


def test_a_rank_that_hangs_while_all_others_wait_for_it_in_the_same_step_is_a_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    phases = {"time/load": 0.1, "time/forward": 1.0, "time/all_reduce": 0.1}
    for step in range(8):
        service.take(*[rank.step(step, phases, "sum>max") for rank in ranks])
        service.wait(1, *ranks)

    service.take(ranks[1].record(8, {"time/load": 0.1}, "sum>max"))
    service.take(*[ranks[n].record(8, {"time/load": 0.1, "time/forward": 1.0}, "sum>max") for n in (0, 2)])
    service.wait(70, *ranks)

    [finding] = service.engine.findings
    assert (finding["kind"], finding["rank"], finding["since"], finding["is_over"]) == ("silent", 1, 8, False)
    assert any("step 8" in notice and "rank 1 has not finished 'forward'" in notice for notice in service.notices)

    service.take(*[rank.record(8, {"time/all_reduce": 60.0}, "sum>max") + rank.done(8) for rank in ranks])
    for step in range(9, 12):
        service.take(*[rank.step(step, phases, "sum>max") for rank in ranks])
        service.wait(1, *ranks)
    assert [(one["rank"], one["is_over"]) for one in service.engine.findings] == [(1, True)]


def test_a_long_step_in_which_all_are_equally_far_is_no_finding() -> None:
    service, ranks = Service(), ranks_of(3)
    for step in range(8):
        service.take(*[rank.step(step, {"time/load": 0.1, "time/forward": 1.0}, "sum>max") for rank in ranks])
        service.wait(1, *ranks)

    service.take(*[rank.record(8, {"time/load": 0.1}, "sum>max") for rank in ranks])
    service.wait(70, *ranks)

    assert service.engine.findings == []


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


def spans_of(rank: Rank, steps: range, name: str = "forward", seconds: float = 1.0) -> Spans:
    """Return what a rank sends of a timer: a span a step, whose id ends with the step."""
    who = rank.writer
    found = [
        Span(
            trace_id=f"{who.rank:032x}",
            span_id=f"{who.rank << 32 | step:016x}",
            parent_id=None,
            name=name,
            start_ns=step * 10**9,
            end_ns=step * 10**9 + round(seconds * 1e9),
            role=who.role,
            rank=who.rank,
            axis="step",
            step=step,
            attributes={"ml.timer.level": 1},
        )
        for step in steps
    ]
    return Spans(who, SpanLines.of(found), tuple(int(span.span_id, 16) for span in found))


def rows_of(service: Service) -> list[dict[str, object]]:
    """Return the newest table of findings."""
    table = [record for record in service.records if isinstance(record, Table)][-1]
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


@pytest.mark.feature("M7", "better", "a finding names a span of the slow timer, to be opened in any tracing tool")
def test_a_finding_names_the_span_that_shows_it_wherever_it_is_told() -> None:
    service, ranks = Service(), ranks_of(4)
    service.take([spans_of(rank, range(10, 16), seconds=1.0 + (rank is ranks[2])) for rank in ranks])
    steps(service, ranks, range(10))

    steps(service, ranks, range(10, 16), slow=2)

    [row] = rows_of(service)
    assert (row["span of"], row["at step"]) == ("forward", 10)
    assert (row["trace"], row["span"]) == (f"{2:032x}", f"{2 << 32 | 10:016x}")
    [finding] = service.engine.findings
    assert (finding["span_id"], finding["span_step"]) == (row["span"], 10)
    [said] = [notice for notice in service.notices if "slow" in notice]
    assert f"Span {row['span']} of trace {row['trace']}, step 10, shows it." in said


def test_spans_that_arrive_after_the_step_has_closed_are_found_for_the_next_table() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))
    steps(service, ranks, range(10, 16), slow=2)
    assert rows_of(service)[0]["span"] is None

    service.take([spans_of(ranks[2], range(10, 16))])
    steps(service, ranks, range(16, 27), slow=2)

    assert rows_of(service)[0]["at step"] == 10


def test_where_spans_were_limited_the_nearest_one_is_named_and_said_to_be_that() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))
    service.take([spans_of(ranks[2], range(3, 7)), spans_of(ranks[2], range(8, 12), name="step")])

    steps(service, ranks, range(10, 16), slow=2)

    [row] = rows_of(service)
    assert (row["span of"], row["at step"]) == ("forward", 6)
    [said] = [notice for notice in service.notices if "slow" in notice]
    assert "step 6, is the nearest one that was kept, 'forward'" in said


def test_a_finding_that_ended_names_no_span_of_a_step_after_its_end_while_there_is_a_better_one() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))
    service.take([spans_of(ranks[2], range(40, 50), seconds=9.0)])  # a rank is ahead of the steps that close

    steps(service, ranks, range(10, 16), slow=2)
    [said] = [notice for notice in service.notices if "slow" in notice]
    assert "step 40, is the nearest one that was kept" in said

    service.take([spans_of(ranks[2], range(10, 16))])
    steps(service, ranks, range(16, 40))

    [finding] = service.engine.findings
    assert finding["is_over"]
    assert finding["since"] <= finding["span_step"] <= finding["last"]


def test_the_last_span_of_a_silent_rank_tells_what_it_did_before() -> None:
    service, ranks = Service(), ranks_of(3)
    steps(service, ranks, range(8))
    service.take([spans_of(ranks[2], range(5, 8), name="load")])

    for step in range(8, 12):
        service.take(*[rank.step(step, {"time/forward": 1.0}, "sum>max") for rank in ranks[:2]])
        service.wait(70, *ranks[:2])

    [row] = rows_of(service)
    assert (row["kind"], row["span of"], row["at step"]) == ("silent", "load", 7)


def test_a_span_of_the_attempt_before_shows_nothing() -> None:
    service = Service()
    first = [Rank(rank, world_size=3, instance=f"a{rank}", attempt=0) for rank in range(3)]
    steps(service, first, range(20))
    service.take([spans_of(first[1], range(10, 20), seconds=9.0)])
    second = [Rank(rank, world_size=3, instance=f"b{rank}", attempt=1, clock=service.now) for rank in range(3)]

    steps(service, second, range(5, 10))
    steps(service, second, range(10, 16), slow=1)

    assert [row["span"] for row in rows_of(service)] == [None]


def test_the_spans_of_many_ranks_are_kept_within_a_bound() -> None:
    kept = NewestSpans()
    for rank in range(300):
        state = WriterState(rank, Rank(rank).writer, "")
        state.attempt = 0
        for request in range(30):
            kept.take(state, SpanLines([f"{{{number}}}" for number in range(10 * request, 10 * request + 10)]))

    held = [list(kept.of("trainer", rank, 0)) for rank in range(300)]
    assert held[0] == []
    assert held[-1] == [f"{{{number}}}" for number in range(40, 300)]  # at least 256, in whole requests
    assert 65_000 <= sum(map(len, held)) <= 65_536


def test_a_rank_that_falls_silent_and_is_heard_again_is_named_both_times_with_its_steps() -> None:
    service, ranks = Service(), ranks_of(4)
    steps(service, ranks, range(10))
    steps(service, ranks[:3], range(10, 16))
    service.wait(60, *ranks[:3])

    steps(service, ranks, range(16, 18))
    service.wait(11, *ranks)

    assert sorted(service.rows()) == list(range(18))
    assert [said for said in service.notices if "silent" in said or "closed without" in said] == [
        "step 10 of role 'trainer' (attempt 0) closed without rank 3: nothing of it had arrived from there. "
        "(otel-ml explain step-incomplete)",
        "Rank 3 of role 'trainer' is heard again: it was silent from step 10 to 15. (otel-ml explain straggler)",
    ]
    tables = [record for record in service.records if isinstance(record, Table)]
    silent = next(table for table in tables if table.rows[0][1] == "silent")
    assert (silent.step, silent.rows[0][1:5]) == (10, ("silent", 3, "", 10))


def step_with_a_thread(rank: Rank, step: int) -> Spans:
    """Return the spans of a step of 19 ms: a thread reduces from within `backward` on until 4 ms after it."""
    who, begin, ms = rank.writer, step * 10**9, 10**6
    whole = f"{who.rank << 32 | step << 8:016x}"
    timed = [("forward", 0, 4, whole), ("backward", 4, 12, whole), ("all_reduce", 6, 16, None),
             ("optimizer", 16, 17, whole), ("step", 0, 19, None)]  # fmt: skip
    found = [
        Span(
            f"{who.rank:032x}", whole if name == "step" else f"{who.rank << 32 | step << 8 | number:016x}", parent,
            name, begin + start * ms, begin + end * ms, who.role, who.rank, "step", step, {"ml.timer.level": 1},
        )
        for number, (name, start, end, parent) in enumerate(timed, 1)
    ]  # fmt: skip
    return Spans(who, SpanLines.of(found), tuple(int(span.span_id, 16) for span in found))


def test_a_thread_that_communicates_beside_the_step_does_not_take_its_account_away() -> None:
    service, ranks = Service(), ranks_of(2)
    times = {"time/forward": 0.004, "time/backward": 0.008, "time/all_reduce": 0.01, "time/optimizer": 0.001}

    for step in range(12):
        service.take([step_with_a_thread(rank, step) for rank in ranks])
        service.take(*(rank.step(step, {**times, "time/step": 0.019}, "sum>max") for rank in ranks))
        service.wait(1, *ranks)

    for row in list(service.rows(own=True).values())[1:]:
        exposed = {name: value for name, value in row.items() if name.startswith("time/exposed/")}
        assert sum(value for name, value in exposed.items() if not name.endswith("/rank")) == pytest.approx(0.019)
        assert exposed["time/exposed/untimed"] == pytest.approx(0.006)
        assert "time/exposed/all_reduce" not in exposed
