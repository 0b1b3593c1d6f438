"""Three verdicts and no fourth: caused needs something that leads there, and 80 % of the effect."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml_exporters.records import Params, Record, RunStatus, Span, StepRecord, Text
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.asking import SLOW, asked, texts
from tests.unit.otel_ml_service.why.jobs import event, finding, job, numbered


def test_a_slow_rank_that_costs_what_the_steps_are_longer_caused_it() -> None:
    found = finding(since=80, until=119, extra_s=0.0149)

    answer = asked(job(slow=SLOW, extra_s=0.015, findings=[found]))

    assert (answer.verdict, answer.first, answer.last) == ("caused", 80, 119)
    assert answer.effect == pytest.approx(0.015, rel=0.02)
    assert answer.sentences[0] == "Steps 80-119 took 27 ms each instead of 12 ms: +15 ms a step, 600 ms in all."
    assert "rank 2 was slow in forward, steps 80-119; 99.3 % of it goes with that" in answer.sentences[1]
    assert "are 14.9 ms shorter; look at step 85" in answer.sentences[2]
    [forward, *_] = answer.account
    assert (forward.name, forward.rank, forward.at_front, forward.steps) == ("forward", 2, 40, 40)
    assert answer.adds_up
    assert sum(phase.seconds for phase in answer.account) == pytest.approx(0.027, rel=0.02)
    assert answer.look_at[0].step == 85


def test_what_steps_are_shorter_without_a_cause_is_what_its_finding_says() -> None:
    found = (*finding(since=80, until=119, extra_s=0.0149)[:-1], 0.012)

    answer = asked(job(slow=SLOW, extra_s=0.015, findings=[found]))

    assert answer.sentences[2].startswith("Without it these steps are 12 ms shorter")


@given(extra_ms=st.floats(0.0, 30.0), effect_ms=st.sampled_from([5.0, 15.0, 40.0]))
@settings(max_examples=40, deadline=None)
def test_nothing_is_caused_with_less_than_80_percent_of_the_effect(extra_ms: float, effect_ms: float) -> None:
    found = finding(since=80, until=119, extra_s=extra_ms / 1e3)

    answer = asked(job(slow=SLOW, extra_s=effect_ms / 1e3, findings=[found]), steps=(80, 119))

    assert answer.effect == pytest.approx(effect_ms / 1e3, rel=0.05)
    if extra_ms < 0.77 * effect_ms:
        assert answer.verdict != "caused"
    if extra_ms > 0.83 * effect_ms:
        assert answer.verdict == "caused"


def test_two_slow_ranks_of_one_phase_do_not_add_up_and_of_two_phases_they_do() -> None:
    one = finding(since=80, until=119, extra_s=0.008)
    same = finding(rank=3, since=80, until=119, extra_s=0.008)
    other = finding(rank=3, phase="backward", since=80, until=119, extra_s=0.007)

    assert asked(job(slow=SLOW, extra_s=0.015, findings=[one, same])).verdict == "coincided"
    assert asked(job(slow=SLOW, extra_s=0.015, findings=[one, other])).verdict == "caused"


def test_a_finding_elsewhere_explains_nothing_here() -> None:
    elsewhere = finding(since=10, until=30, extra_s=0.015)

    answer = asked(job(slow=SLOW, extra_s=0.015, findings=[elsewhere]), steps=(80, 119))

    assert answer.verdict == "cannot tell"
    assert "+15 ms of it is in forward, and no rank was found slower there than its peers" in answer.sentences[1]


@pytest.mark.feature("F22", "better", "`otel-ml why`: caused, coincided or cannot tell, with the evidence")
def test_what_changed_at_the_same_time_coincided() -> None:
    rate = job(slow=SLOW, extra_s=0.015, values=lambda step: {"seq_len": 2048.0 if step in SLOW else 1024.0})
    happened = job(slow=SLOW, extra_s=0.015, more=[event("checkpoint_moved", 80, '{"to": "nfs"}')])
    again = job(slow=SLOW, extra_s=0.015, attempt=lambda step: int(step >= 80))

    for records, named in ((rate, "seq_len"), (happened, "checkpoint_moved"), (again, "restarted (attempt 2)")):
        answer = asked(records)
        assert answer.verdict == "coincided"
        assert named in answer.sentences[1]
        assert answer.explained == 0.0


def test_parameters_that_were_set_then_coincided() -> None:
    rows = job(slow=SLOW, extra_s=0.015)
    at = next(row.time for row in rows if isinstance(row, StepRecord) and row.step == 80)

    answer = asked(numbered([*rows, Params(0, at, {"batch_size": 64})]))

    assert answer.verdict == "coincided"
    assert "batch_size" in answer.sentences[1]


def test_what_changed_elsewhere_does_not_coincide() -> None:
    answer = asked(job(slow=SLOW, extra_s=0.015, values=lambda step: {"lr": 0.1 if step < 40 else 0.01}))

    assert answer.verdict == "cannot tell"
    assert "lr" not in texts(answer).replace("already", "")


def test_a_usual_step_has_nothing_to_explain() -> None:
    answer = asked(job(slow=SLOW, extra_s=0.015), steps=(50, 50))

    assert answer.verdict == "cannot tell"
    assert "as usual" in answer.sentences[0]


def test_without_timers_it_says_which_would_be_needed() -> None:
    answer = asked(job(slow=SLOW, extra_s=0.015, is_timed=False), steps=(80, 119))

    assert answer.effect == pytest.approx(0.015, rel=0.1)  # from when the steps closed
    assert answer.verdict == "cannot tell"
    assert 'with otel_ml.timed("forward")' in answer.sentences[2]


def test_of_one_rank_the_phase_is_named_and_that_it_has_no_peers() -> None:
    rows = job(
        slow=SLOW, extra_s=0.03, is_timed=False, values=lambda step: {"time/forward": 0.04, "time/backward": 0.02}
    )
    facts = facts_of("run", rows)
    times = {row.step: int(row.time * 1e9) for row in rows if isinstance(row, StepRecord)}
    lengths = {step: 40_000_000 if step in SLOW else 10_000_000 for step in times}
    facts.spans = lambda begin, end, *wanted: (
        Span("aa", f"{name}{step}", None, name, at - before, at - after, "trainer", 0, "step", step)
        for step, at in times.items()
        if begin <= at <= end
        for name, before, after in (("forward", lengths[step] + 2_000_000, 2_000_000), ("backward", 2_000_000, 0))
    )

    answer = why(facts, Question(first=80, last=119))

    assert answer.sentences[1] == (
        "Cannot tell: +30 ms of it is in forward, and a rank alone has no peers to be compared with."
    )
    assert answer.adds_up
    assert {phase.name: round(phase.seconds, 6) for phase in answer.account} == {"forward": 0.04, "backward": 0.002}


def test_where_spans_of_a_rank_are_missing_no_account_is_made_of_the_others() -> None:
    values = {"time/forward": 0.04, "time/forward/argmax": 3.0, "time/all_reduce": 0.03, "time/all_reduce/argmax": 0.0}
    rows = job(is_timed=False, values=lambda step: values)
    facts = facts_of("run", rows)
    facts.spans = lambda begin, end, *wanted: (
        Span("aa", f"{rank}{row.step}", None, "all_reduce", int(row.time * 1e9) - 30, int(row.time * 1e9), "trainer",
             rank, "step", row.step)
        for row in rows if isinstance(row, StepRecord) and begin <= row.time * 1e9 <= end
        for rank in range(3)
    )  # fmt: skip

    answer = why(facts, Question(first=80, last=119))

    assert not answer.adds_up
    assert {phase.name for phase in answer.account} == {"forward", "all_reduce"}


def test_steps_that_are_not_there_are_said_to_be_not_there() -> None:
    answer = asked(job(), steps=(500, 510))

    assert answer.verdict == "cannot tell"
    assert answer.sentences[0] == "Nothing is known of steps 500-510: the run has steps 0-159."


@pytest.mark.parametrize("records", [[], job(steps=1), job(steps=5), job(steps=1, is_timed=False)])
def test_a_run_of_no_or_few_steps_has_an_answer(records: list[Record]) -> None:
    answer = asked(records)

    assert answer.verdict == "cannot tell"
    assert all(answer.sentences)


def test_how_much_is_known_is_said() -> None:
    found = finding(since=80, until=119, extra_s=0.015)

    answer = asked(job(slow=SLOW, extra_s=0.015, findings=[found], missing=frozenset({90, 91})))

    assert "no rank is missing in 38 of 40 steps" in texts(answer)


def test_of_a_rank_that_was_killed_it_is_said_in_which_steps_it_is_missing_and_why() -> None:
    silent = ("critical", "silent", 2, "", 81, *[None] * 8, "rank 2", None)
    killed = Text(0, 1001.0, "otel_ml/killed/rank_2", "step", 80, "Killed. Nothing was heard of it since.")
    records = [*job(findings=[silent], more=[killed])[:-1], RunStatus(0, 1002.0, "killed")]

    said = texts(asked(records))

    assert "no rank is missing in 0 of 79 steps" in said
    assert "rank 2 has no values in steps 81-159: it was killed at step 80" in said
    assert "the run ended as 'killed'" in said
    assert "no rank is missing in 81 of 160 steps" in texts(asked(records, steps=(0, 159)))


def test_the_last_steps_of_a_job_whose_ranks_were_killed_are_explained_without_their_account() -> None:
    silent = ("critical", "silent", 2, "", 152, *[None] * 8, "rank 2", None)
    rows = job(findings=[silent], values=lambda step: {"time/step": 0.012})
    without = [
        replace(row, values={name: value for name, value in row.values.items() if "exposed" not in name})
        if isinstance(row, StepRecord) and row.step >= 152
        else row
        for row in rows
    ]

    answer = asked(without)

    assert answer.sentences[0] == "Steps 152-159 took 12 ms each, as usual (12 ms)."
    assert "rank 2 was silent, steps 152-159" in answer.sentences[1]
    assert "rank 2 has no values in steps 152-159" in texts(answer)


def test_a_step_that_a_restart_did_again_with_all_ranks_lacks_none() -> None:
    first, again = job(steps=40, missing=frozenset({30, 31})), job(steps=40, attempt=lambda step: 1)

    said = texts(asked(numbered([*first[:-1], *again]), steps=(20, 39)))

    assert "no rank is missing in 20 of 20 steps" in said


def test_a_healthy_run_has_no_culprit() -> None:
    answer = asked(job(steps=600))

    assert answer.verdict == "cannot tell"
    assert "Nothing stands out in 600 steps" in answer.sentences[0]
    assert [phase.name for phase in answer.account] == ["forward", "all_reduce"]


@pytest.mark.parametrize("kind", ["slow", "silent"])
def test_who_was_found_is_named_where_steps_are_as_long_as_usual(kind: str) -> None:
    """A generator that is slow for each token and makes few, a rank that dies: the steps say nothing of it."""
    found = finding(rank=1, since=120, until=159, extra_s=0.0 if kind == "silent" else 0.0001, kind=kind)

    said = asked(job(findings=[found]))

    assert f"rank 1 was {kind}" in " ".join(said.sentences)
    assert "no rank was found slow" not in " ".join(said.sentences)


def test_a_run_that_has_ended_does_not_go_on_while_its_service_still_has_it_open() -> None:
    facts = facts_of("run", job())
    facts.is_live = True

    assert not [one for one in why(facts, Question()).evidence if one.kind == "state"]


def test_a_pause_before_does_not_make_slow_steps_usual() -> None:
    found = finding(since=80, until=119, extra_s=0.015)
    rows = job(slow=SLOW, extra_s=0.015, findings=[found])
    paused = [
        replace(row, values={**row.values, "time/exposed/forward": 0.5})
        if isinstance(row, StepRecord) and row.step in range(70, 76)
        else row
        for row in rows
    ]

    answer = asked(paused)

    assert answer.verdict == "caused"
    assert answer.effect == pytest.approx(0.015, rel=0.05)


@pytest.mark.feature(
    "M38", "better", "a slow device is told from a slow program: `otel-ml why` names the rank in the test's own timer"
)
def test_a_rank_that_is_slow_in_the_test_of_the_hardware_is_named_with_it() -> None:
    found = finding(phase="hardware_test/matmul", since=80, until=119, extra_s=0.0149)

    answer = asked(job(slow=SLOW, extra_s=0.015, findings=[found]))

    assert answer.verdict == "caused"
    assert "rank 2 was slow in hardware_test/matmul, steps 80-119" in answer.sentences[1]


def test_of_a_finding_whose_span_is_of_other_steps_the_one_that_shows_it_is_looked_up() -> None:
    found = list(finding(since=80, until=119, extra_s=0.015))
    found[10] = 131  # "at step": told late, when only newer spans were left
    facts = facts_of("run", job(slow=SLOW, extra_s=0.015, findings=[tuple(found)]))
    facts.spans = lambda begin, end, *wanted: iter(
        Span("aa", f"s{step}-{rank}-{name}", None, name, 0, length, "trainer", rank, "step", step)
        for step, length in [(79, 900), (85, 20), (97, 30), (131, 800)]
        for rank in (1, 2)
        for name in ("forward", "data")
    )

    answer = why(facts, Question())

    assert (answer.look_at[0].step, answer.look_at[0].text) == (97, "span s97-2-forward of rank 2, forward")
    assert "look at step 97" in answer.sentences[2]


def test_without_two_ranks_is_said_of_them() -> None:
    slow = range(100, 140)
    two = [finding(rank=rank, since=100, until=139, extra_s=0.012, phase=phase) for rank, phase in
           ((2, "forward"), (3, "data"))]  # fmt: skip

    answer = asked(job(slow=slow, extra_s=0.024, findings=two))

    assert answer.sentences[2].startswith("Without them these steps are 24 ms shorter")


def test_steps_that_became_shorter_for_good_are_told_and_nobody_says_that_no_level_changed() -> None:
    answer = asked(job(slow=range(80), extra_s=0.010))

    assert answer.sentences[0].startswith("Steps 80-159 took 12 ms each instead of 22 ms: -10 ms a step")
    assert answer.sentences[1] == "Cannot tell: -10 ms of it is in forward; what was changed there is not recorded."


def test_a_run_of_too_few_steps_is_not_said_to_have_nothing_that_stands_out() -> None:
    answer = asked(job(steps=6, slow=range(4, 5), extra_s=0.3))

    assert answer.sentences[:2] == (
        "The run has 6 steps, and no rank was found slow in them.",
        "Cannot tell: it takes 8 to say what is usual, and which are longer.",
    )


def test_a_slow_rank_that_has_half_of_it_is_told_with_that_half_and_is_not_said_to_lead_nowhere() -> None:
    answer = asked(
        job(slow=SLOW, extra_s=0.024, findings=[finding(since=80, until=119, extra_s=0.012)]), steps=(80, 119)
    )

    assert answer.verdict == "coincided"
    assert "; 50 % of it goes with that, and 80 % would make it the cause." in answer.sentences[1]
    assert "nothing shows" not in answer.sentences[1]


def test_the_costliest_steps_are_told_with_how_much_was_found_in_others() -> None:
    turns = [finding(rank=rank, since=since, until=since + 9, extra_s=0.012) for rank, since in
             ((0, 40), (2, 60), (0, 80))]  # fmt: skip

    answer = asked(job(slow=range(40, 90), extra_s=0.012, findings=turns))
    alone = asked(job(slow=range(40, 50), extra_s=0.012, findings=turns[:1]))

    assert "slow ranks were found 2 times in other steps, too, 240 ms in all" in texts(answer)
    assert "in other steps" not in texts(alone)


def test_a_phase_that_is_done_no_longer_is_what_made_steps_shorter() -> None:
    def values(step: int) -> dict[str, float]:
        return {"time/exposed/backward": 0.02 if step < 80 else 0.0, "time/exposed/backward/rank": 0.0}

    answer = asked(job(values=values))

    assert answer.sentences[1] == "Cannot tell: -20 ms of it is in backward; what was changed there is not recorded."
    assert (answer.account[0].name, answer.account[0].seconds) == ("backward", 0.0)
