"""The span that shows a finding is named with it."""

from __future__ import annotations

import pytest

from otel_ml_exporters.records import Span, Table
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.newest_spans import NewestSpans
from otel_ml_service.aggregation.observation import Spans
from otel_ml_service.aggregation.writer_state import WriterState
from tests.strategies import Rank, Service
from tests.unit.otel_ml_service.findings.served_ranks import ranks_of, steps


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


def test_of_a_request_that_has_waited_for_minutes_the_newest_spans_are_kept() -> None:
    kept, state = NewestSpans(), WriterState(0, Rank(0).writer, "")
    state.attempt = 0

    for request in range(3):
        kept.take(state, SpanLines([f"{{{number}}}" for number in range(5000 * request, 5000 * request + 5000)]))

    assert list(kept.of("trainer", 0, 0)) == [f"{{{number}}}" for number in range(14_744, 15_000)]


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


def step_with_a_timer_inside(rank: Rank, step: int, late_s: float, waits_s: float) -> Spans:
    """Return the spans of a step in which a rank is `late_s` in no timer, then `forward` has `attention` inside."""
    who, begin, ms = rank.writer, 4 * step * 10**9, 10**6
    first = round(1000 * (0.1 + late_s))
    last = first + 800 + round(1000 * (0.1 + waits_s))
    timed = {"step": (0, last), "forward": (first, first + 800), "attention": (first + 50, first + 750),
             "all_reduce": (first + 800, last)}  # fmt: skip
    inside = {"forward": 1, "attention": 2, "all_reduce": 1}
    ids = [f"{who.rank << 32 | step << 8 | number:016x}" for number in range(5)]
    found = [
        Span(
            f"{who.rank:032x}", ids[number], ids[inside[name]] if name in inside else None, name,
            begin + start * ms, begin + end * ms, who.role, who.rank, "step", step, {"ml.timer.level": 1},
        )
        for number, (name, (start, end)) in enumerate(timed.items(), 1)
    ]  # fmt: skip
    return Spans(who, SpanLines.of(found), tuple(int(span.span_id, 16) for span in found))


def test_who_is_late_in_no_timer_is_found_where_timers_are_inside_of_others() -> None:
    service, ranks = Service(), ranks_of(4)
    for step in range(40):
        late_s = [0.3 if step >= 20 and rank is ranks[2] else 0.0 for rank in ranks]
        for rank, late in zip(ranks, late_s, strict=True):
            waits_s = max(late_s) - late
            service.take([step_with_a_timer_inside(rank, step, late, waits_s)])
            times = {
                "time/forward": 0.8, "time/attention": 0.7, "time/all_reduce": 0.1 + waits_s,
                "time/step": 1.0 + max(late_s),
            }  # fmt: skip
            service.take(rank.step(step, times, "sum>max"))
        service.wait(4, *ranks)

    [finding] = service.engine.findings
    assert (finding["rank"], finding["phase"], finding["since"]) == (2, "untimed", 20)
    assert finding["extra_s"] == pytest.approx(0.3)
