"""The first thing that a page says, of runs in which something is wrong, or nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from otel_ml_exporters.records import Params, Record, RunStatus, Span, SpanBatch, StepRecord, Table, Text
from otel_ml_service.findings.finding import COLUMNS
from otel_ml_service.report.answer import Trouble, _cost, _shown_by, _what, _when, answer, troubles
from otel_ml_service.report.contents import Contents, contents
from otel_ml_service.report.sections import findings
from otel_ml_service.report.steps_told import steps_told
from tests.unit.otel_ml_service.report.test_page import Reader

_NOBODY = (None, None, None, None)


def run_of(*findings: Sequence[object], name: str = "otel_ml/findings", further: Sequence[Record] = ()) -> Contents:
    steps = [
        StepRecord(
            number + 1, "trainer", "step", number, 0, 1000.0 + number,
            {"time/step": 0.05, "time/forward": 0.03, "progress/remaining_steps": 99.0 - number, "time/remaining": 90},
        )
        for number in range(10)
    ]  # fmt: skip
    table = [Table(100, 1010.0, name, "step", 9, COLUMNS, tuple(map(tuple, findings)))] if findings else []
    return contents("run-1", "pages", [*steps, *table, *further])


def said(run: Contents, *, is_live: bool = False) -> str:
    return "".join(Reader(answer(run, steps_told(run), is_live=is_live)).texts)


def test_a_finding_is_a_sentence_with_its_cost_and_share_of_the_time() -> None:
    run = run_of(("critical", "slow", 2, "forward", 4, 7, 1.0, 0.025, 0.1, *_NOBODY))

    assert "Rank 2 was slow in forward, steps 4–7: +25 ms a step, 50 % of the time, 100 ms in all." in said(run)


def test_what_lasts_comes_first_and_is_said_to_last() -> None:
    over = ("critical", "slow", 2, "forward", 4, 7, 1.0, 0.025, 9.0, *_NOBODY)
    lasts = ("warning", "slow", 0, "data", 8, None, 0.2, 0.005, 0.01, *_NOBODY)

    text = said(run_of(over, lasts), is_live=True)

    assert "Rank 0 is slow in data, since step 8: +5 ms a step, 10 % of the time" in text
    assert text.index("Rank 0") < text.index("Rank 2")


def test_a_silent_rank_of_another_role_is_named_with_its_role() -> None:
    run = run_of(("critical", "silent", 1, "", 3, None, None, None, None, *_NOBODY), name="generator/otel_ml/findings")

    assert "Rank 1 of generator has been silent, since step 3." in said(run)


def test_a_stage_with_more_work_is_named_and_no_rank() -> None:
    run = run_of(("critical", "stage", None, "", 2, None, 0.72, 0.02, 0.2, *_NOBODY, "stage 2", 0.015))

    text = said(run)

    assert "Stage 2 has 1.72 × the work of the other stages, since step 2: +20 ms a step" in text
    assert "None" not in text


def test_times_that_follow_the_data_are_nobodys_fault() -> None:
    found = ("warning", "shape", None, "forward and backward", 2, 7, 0.1, 0.005, 0.03, *_NOBODY, "nobody", 0.005)

    text = said(run_of(found))

    assert "Step time follows the data (forward and backward vary together), nobody is slow, steps 2–7" in text


def test_who_is_given_more_to_do_is_named_with_how_much_and_is_not_called_slow() -> None:
    cost = (None, 0.02, 0.2, *_NOBODY)
    run = run_of(("warning", "load", None, "forward", 2, None, *cost, "rank 2", 0.02, "2", None, None, "tokens", 1.4))

    text = said(run)

    assert "Rank 2 has 1.4 × the tokens of the others, since step 2: +20 ms a step, 40 % of the time" in text
    assert "slow" not in text


def test_times_that_follow_a_metric_name_it() -> None:
    found = ("warning", "shape", None, "forward and backward", 2, 7, 0.1, 0.005, 0.03, *_NOBODY, "nobody", 0.005)
    run = run_of((*found, None, None, None, "seq_len", None))

    assert "Step time follows seq_len of each rank (forward and backward vary together), nobody is slow" in said(run)


def test_a_rank_that_was_killed_comes_first() -> None:
    was_in = "Killed in forward, 12 s after it began. Nothing was heard of it since."
    run = run_of(further=[Text(200, 1010.0, "otel_ml/killed/rank_3", "step", 9, was_in)])

    assert said(run).startswith("Rank 3 was killed at step 9 in forward, 12 s after it began")


def test_what_passed_between_steps_is_told_where_it_is_much() -> None:
    assert "8.55 s (95 % of the time) passed between steps, in no timer: 950 ms each time." in said(run_of())


def with_checkpoints(*findings: Sequence[object]) -> Contents:
    steps = [
        StepRecord(
            number + 1, "trainer", "step", number, 0, 1000.0 + 0.01 * (number + 1) + 0.4 * ((number + 1) // 20),
            {f"time/exposed/{name}{of}": value for name, seconds in (("forward", 0.01), ("checkpoint", at_end))
             for of, value in (("", seconds), ("/rank", 0.0))},
        )
        for number in range(160)
        for at_end in [0.4 if number % 20 == 19 else 0.0]
    ]  # fmt: skip
    table = [Table(200, 1010.0, "otel_ml/findings", "step", 9, COLUMNS, tuple(map(tuple, findings)))]
    return contents("run-1", "pages", [*steps, *(table if findings else [])])


def test_steps_that_are_far_longer_now_and_then_are_told_once() -> None:
    told = "8 of them took 3.2 s more in all (66.7 % of the time): +400 ms of checkpoint every 20th step (19, 39, "
    pause = ("critical", "pause", None, "checkpoint", 19, None, 2.0, 0.02, 2.8, *_NOBODY, "nobody", 0.02)
    slow = ("critical", "slow", 2, "forward", 4, 7, 1.0, 0.025, 0.1, *_NOBODY)

    assert told in said(with_checkpoints())
    assert told in said(with_checkpoints(pause))
    assert "The job pauses now and then" not in said(with_checkpoints(pause))
    assert told.replace("of them", "of 160 steps") in said(with_checkpoints(slow))


def test_a_table_of_findings_has_the_columns_that_say_something_and_the_place_first() -> None:
    slow = ("critical", "slow", 2, "forward", 4, 7, 1.0, 0.025, 0.1, "forward", 5, "ab" * 8, "cd" * 16, "rank 2", 0.02)
    run = run_of((*slow, None, None, None, None, None))

    texts = Reader(findings(run)).texts

    header = texts[texts.index("level") : texts.index("trace") + 1]
    assert header == [
        "level", "kind", "place", "phase", "since", "until", "s per step", "s in all", "slowdown", "s saved per step",
        "span of", "at step", "span", "trace",
    ]  # fmt: skip


def test_how_far_a_live_run_is_and_what_is_left() -> None:
    assert "live · step 9 of 100 · lately 50 ms a step · 1 min 30 s left · 9 s so far" in said(run_of(), is_live=True)


def test_the_bar_counts_the_steps_that_are_done() -> None:
    assert '<progress value="10" max="100"' in answer(run_of(), steps_told(run_of()), is_live=True)


def test_a_run_that_is_over_has_no_time_left() -> None:
    text = said(run_of(further=[RunStatus(200, 1011.0, "failed")]))

    assert "failed · step 9" in text
    assert "left" not in text


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([], "No step was recorded. Call otel_ml.set_step(step), or loop over otel_ml.steps(loader)."),
        ([StepRecord(1, "trainer", "time", 0, 0, 1.0, {"loss": 1.0})], "No step was recorded."),
        ([StepRecord(1, "trainer", "step", 0, 0, 1.0, {"loss": 1.0})],
         "No timers: nothing tells where the time goes. Time the parts of a step with otel_ml.timed(…)."),
        ([Params(1, 1.0, {"world_size": 1}), StepRecord(2, "trainer", "step", 0, 0, 1.0, {"time/forward": 1.0})],
         "One rank: there is nobody to compare it with."),
        ([StepRecord(1, "trainer", "step", 0, 0, 1.0, {"time/step": 1.0, "time/all_reduce": 0.8})],
         "No rank was found slow or silent. 80 % of the time goes to all_reduce, which is waiting."),
        ([StepRecord(1, "trainer", "step", 0, 0, 1.0, {"time/step": 1.0, "time/forward": 0.9}),
          StepRecord(2, "trainer", "step", 1, 0, 2.0, {"time/forward": 0.9})],  # killed in it
         "90 % of the time goes to forward."),
    ],
)  # fmt: skip
def test_where_nobody_is_slow_it_is_said_what_can_be_told(records: list[Record], sentence: str) -> None:
    assert sentence in said(contents("run-1", "pages", records))


@pytest.mark.parametrize("worst", [4, 6, 7])
def test_a_finding_without_a_span_of_its_own_is_shown_by_the_step_in_which_it_was_worst(worst: int) -> None:
    late = ("critical", "slow", 2, "forward", 4, 7, 1.0, 0.025, 0.1, "forward", 9, "ab" * 8, "cd" * 16)
    spans = [
        Span("0" * 32, "0" * 16, None, "forward", 0, took * 10**6, "trainer", rank, "step", step)
        for step in range(10)
        for rank in range(4)
        for took in [90 if (rank, step) == (2, worst) else 20]
    ]

    [trouble] = troubles(run_of(late, further=[SpanBatch(200, spans)]))

    assert trouble.shows == worst


def test_one_map_of_slow_ranks_needs_no_title_and_two_have_one_each() -> None:
    def spans_of(role: str) -> list[Span]:
        return [
            Span("0" * 32, "0" * 16, None, "forward", 0, 20 * 10**6, role, rank, "step", step)
            for step in range(4)
            for rank in range(3)
        ]

    one, two = run_of(), run_of()
    one.add(SpanBatch(200, spans_of("trainer")))
    two.add(SpanBatch(200, [*spans_of("trainer"), *spans_of("generator")]))

    assert "trainer, step" not in Reader(findings(one)).texts
    assert {"trainer, step", "generator, step"} <= set(Reader(findings(two)).texts)


@pytest.mark.parametrize("is_live", [True, False])
def test_metrics_that_are_no_longer_numbers_come_first(is_live: bool) -> None:
    rows = [
        StepRecord(step + 1, "trainer", "step", step, 0, 1000.0 + step, {
            "loss": 0.5 if step < 6 else math.nan, "norm": 2.0 if step < 4 else math.inf, "norm/max": math.inf,
            "blink": math.nan if step == 3 else 1.0,
        })
        for step in range(10)
    ]  # fmt: skip

    text = said(contents("run-1", "pages", rows), is_live=is_live)

    assert text.startswith("norm is inf since step 4; the step before had 2. loss is nan since step 6; ")
    assert "blink" not in text
    assert "norm/max" not in text


def test_a_metric_that_is_no_longer_a_number_is_told_though_a_value_of_an_older_step_came_late() -> None:
    evals = {4: {"eval": 0.5}, 8: {"eval": math.nan}}
    rows = [
        StepRecord(step + 1, "trainer", "step", step, 0, 1000.0 + step, {"loss": 1.0, **evals.get(step, {})})
        for step in range(10)
    ]
    late = StepRecord(11, "trainer", "step", 2, 0, 1002.0, {"eval": 0.75}, amendment=True)

    text = said(contents("run-1", "pages", [*rows, late]))

    assert text.startswith("eval is nan since step 8; the step before had 0.5")


@pytest.mark.parametrize("left", [math.inf, math.nan])
def test_what_remains_may_be_no_number(left: float) -> None:
    unknown = {"progress/remaining_steps": left, "time/remaining": left}
    run = run_of(further=[StepRecord(50, "trainer", "step", 10, 0, 1010.0, {"time/step": 0.05, **unknown})])

    assert "step 10 · lately 50 ms a step" in "".join(Reader(answer(run, steps_told(run))).texts)


def trouble(kind: str, who: str = "rank 2", **given: object) -> Trouble:
    about: dict[str, object] = {
        "place": "", "role": "trainer", "axis": "step", "level": "warning", "rank": 2, "phase": "forward", "since": 4,
        "until": None, "extra_s": 0.02, "cost_s": 0.2, "slowdown": 0.5, "shows": 4, "share": None, **given,
    }  # fmt: skip
    return Trouble(kind=kind, who=who, **about)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (trouble("slow"), "Rank 2 is slow in forward, since step 4"),
        (trouble("slow", until=7), "Rank 2 was slow in forward, steps 4–7"),
        (trouble("slow", until=4, phase=""), "Rank 2 was slow, step 4"),
        (trouble("slow", role="generator"), "Rank 2 of generator is slow in forward, since step 4"),
        (trouble("slow", "role generator", role="trainer"), "Role generator is slow in forward, since step 4"),
        (trouble("slow", "role a", role="generator", axis="rollout"), "Role a is slow in forward, since rollout 4"),
        (trouble("silent", phase=""), "Rank 2 has been silent, since step 4"),
        (trouble("silent", "ranks 2, 5", until=1234, phase=""), "Ranks 2, 5 was silent, steps 4–1,234"),
        (trouble("pause", "nobody"), "The job pauses now and then in forward, since step 4"),
        (trouble("pause", "nobody", role="generator", until=7, phase=""),
         "Role generator paused now and then, steps 4–7"),
        (trouble("pause"), "Rank 2 pauses now and then in forward, since step 4"),
        (trouble("pause", role="generator"), "Rank 2 of generator pauses now and then in forward, since step 4"),
        (trouble("stage", "stage 1"), "Stage 1 has 1.5 × the work of the other stages, since step 4"),
        (trouble("stage", "stage 1", until=7, slowdown=None),
         "Stage 1 had 1 × the work of the other stages, steps 4–7"),
        (trouble("load", amount="tokens", given=1.4), "Rank 2 has 1.4 × the tokens of the others, since step 4"),
        (trouble("load", "ranks 2, 5", amount="tokens", given=1.4),
         "Ranks 2, 5 have 1.4 × the tokens of the others, since step 4"),
        (trouble("load", until=7, amount="tokens", given=1.4, role="generator"),
         "Rank 2 of generator had 1.4 × the tokens of the others, steps 4–7"),
        (trouble("shape", "nobody", role="generator"),
         "Step time of generator follows the data (forward vary together), nobody is slow, since step 4"),
        (trouble("shape", "nobody", amount="seq_len", until=7),
         "Step time follows seq_len of each rank (forward vary together), nobody is slow, steps 4–7"),
    ],
)  # fmt: skip
def test_each_kind_of_finding_is_a_clause(one: Trouble, said: str) -> None:
    assert _what(one) == said


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (trouble("slow", share=0.25), ": +20 ms a step, 25 % of the time, 200 ms in all"),
        (trouble("slow", share=1.7), ": +20 ms a step, 100 % of the time, 200 ms in all"),
        (trouble("slow"), ": +20 ms a step, 50 % longer than the usual rank, 200 ms in all"),
        (trouble("slow", "role generator"), ": +20 ms a step, 50 % longer than before, 200 ms in all"),
        (trouble("slow", extra_s=None, cost_s=None, slowdown=None), ""),
        (trouble("slow", extra_s=0.0, cost_s=0.2, slowdown=0.0), ": 200 ms in all"),
    ],
)
def test_what_a_finding_costs_is_told_as_far_as_it_is_known(one: Trouble, said: str) -> None:
    assert _cost(one) == said


def test_one_step_is_no_steps() -> None:
    assert [_when(trouble("slow", since=1000, until=until)) for until in (None, 1000, 1001)] == [
        "since step 1,000", "step 1,000", "steps 1,000–1,001",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rank", "said", "shown"),
    [(2, 5, 5), (2, 4, 4), (2, 7, 7), (2, 3, 6), (2, 8, 6), (2, None, 6), (3, None, 7), (None, None, 4), (9, None, 4)],
)
def test_a_finding_is_shown_by_the_step_that_it_names_or_by_its_worst(
    rank: int | None, said: int | None, shown: int
) -> None:
    slow = {3: {2: 9.0}, 4: {2: 1.0}, 6: {2: 3.0, 3: math.nan}, 7: {2: 2.0, 3: 0.5}, 8: {2: 9.0}}

    assert _shown_by(slow, rank, 4, 7, said) == shown


def test_the_most_expensive_of_what_lasts_comes_first_and_then_what_is_over() -> None:
    def found(rank: int, until: int | None, cost: float | None) -> tuple[object, ...]:
        return ("warning", "slow", rank, "forward", 4, until, 1.0, 0.025, cost, *_NOBODY)

    rows = [found(0, 7, 9.0), found(1, None, 1.0), found(2, None, 5.0), found(3, 7, 10.0), found(4, None, None)]

    assert [one.rank for one in troubles(run_of(*rows))] == [2, 1, 4, 3, 0]


@pytest.mark.parametrize(
    ("name", "axis", "role"),
    [
        ("otel_ml/findings", "step", "trainer"),
        ("generator/otel_ml/findings", "step", "generator"),
        ("generator/rollout/otel_ml/findings", "rollout", "generator"),
        ("rollout/otel_ml/findings", "rollout", "trainer"),
    ],
)
def test_a_table_of_findings_is_of_a_role_and_an_axis(name: str, axis: str, role: str) -> None:
    row = ("critical", "slow", 2, "forward", 4, 7, True, 0.025, math.inf, *_NOBODY)
    table = Table(1, 1.0, name, axis, 9, COLUMNS, (row, ("warning", "slow", 2, "forward", None, 7)))

    [one] = troubles(contents("run-1", "pages", [table]))

    assert (one.role, one.axis, one.place) == (role, axis, name.removesuffix("otel_ml/findings"))
    assert (one.level, one.kind, one.who, one.phase, one.since, one.until) == (
        "critical", "slow", "rank 2", "forward", 4, 7,
    )  # fmt: skip
    assert (one.extra_s, one.cost_s, one.slowdown, one.share, one.shows) == (0.025, None, None, None, 4)


def test_the_share_of_the_time_is_that_of_the_steps_that_had_it() -> None:
    took = {step: 0.1 if 4 <= step <= 7 else 9.0 for step in range(10)}
    rows = [StepRecord(step + 1, "trainer", "step", step, 0, 1.0, {"time/step": value}) for step, value in took.items()]
    account = [
        StepRecord(step + 1, "trainer", "step", step, 0, 1.0, {
            "time/step": 9.0, "time/exposed/a": 0.15, "time/exposed/b": 0.05, "time/exposed/a/rank": 1.0,
        })
        for step in range(10)
    ]  # fmt: skip
    table = Table(99, 1.0, "otel_ml/findings", "step", 9, COLUMNS,
                  (("critical", "slow", 2, "forward", 4, 7, 1.0, 0.025, 0.1, *_NOBODY),))  # fmt: skip

    [timed] = troubles(contents("run-1", "pages", [*rows, table]))
    [by_account] = troubles(contents("run-1", "pages", [*account, table]))

    assert timed.share == pytest.approx(0.25)
    assert by_account.share == pytest.approx(0.125)


def test_five_findings_are_told_and_how_many_more_there_are() -> None:
    rows = [("warning", "slow", rank, "forward", 4, 7, 1.0, 0.025, 0.1, *_NOBODY) for rank in range(7)]

    assert "2 more below." in said(run_of(*rows))
    assert said(run_of(*rows)).count("was slow in forward") == 5
    assert "more below" not in said(run_of(*rows[:5]))
