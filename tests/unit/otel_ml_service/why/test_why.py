"""Three verdicts and no fourth: caused needs something that leads there, and 80 % of the effect."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml.exceptions import ConfigError
from otel_ml_exporters.records import Params, Record, RunStatus, Span, StepRecord, Text
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.jobs import event, finding, job, no_rank, numbered

ACCOUNT = ("time/exposed/forward", "time/exposed/all_reduce")
SLOW = range(80, 120)


def asked(
    records: Sequence[Record], metric: str | None = None, steps: tuple[int, int] | None = None, axis: str | None = None
) -> Answer:
    return why(facts_of("run", records), Question(metric, *(steps or (None, None)), axis=axis))


def texts(answer: Answer) -> str:
    return "\n".join([*answer.sentences, *(one.text for one in answer.evidence)])


def test_a_slow_rank_that_costs_what_the_steps_are_longer_caused_it() -> None:
    found = finding(since=80, until=119, extra_s=0.0149)

    answer = asked(job(slow=SLOW, extra_s=0.015, findings=[found]))

    assert (answer.verdict, answer.first, answer.last) == ("caused", 80, 119)
    assert answer.effect == pytest.approx(0.015, rel=0.02)
    assert answer.sentences[0] == "Steps 80-119 took 27 ms each instead of 12 ms: +15 ms a step, 600 ms in all."
    assert "rank 2 was slow in forward, steps 80-119; 99% of it goes with that" in answer.sentences[1]
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


def test_a_step_time_that_follows_a_metric_is_said_to_follow_it() -> None:
    rng = np.random.default_rng(3)
    tokens = rng.lognormal(size=200)
    rows = [
        StepRecord(0, "trainer", "step", step, 0, 1e3 + step, {"tokens": float(count), "time/step": 0.01 + count / 500})
        for step, count in enumerate(tokens)
    ]  # fmt: skip

    answer = asked(numbered(rows), steps=(int(tokens.argmax()),) * 2)

    assert answer.verdict == "coincided"
    assert "step time follows tokens (r = 1.00)" in answer.sentences[1]


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

    assert "all ranks have values in 38 of 40 steps" in texts(answer)


def test_of_a_rank_that_was_killed_it_is_said_in_which_steps_it_is_missing_and_why() -> None:
    silent = ("critical", "silent", 2, "", 81, *[None] * 8, "rank 2", None)
    killed = Text(0, 1001.0, "otel_ml/killed/rank_2", "step", 80, "Killed. Nothing was heard of it since.")
    records = [*job(findings=[silent], more=[killed])[:-1], RunStatus(0, 1002.0, "killed")]

    said = texts(asked(records))

    assert "all ranks have values in 0 of 79 steps" in said
    assert "rank 2 has no values in steps 81-159: it was killed at step 80" in said
    assert "the run ended as 'killed'" in said
    assert "all ranks have values in 81 of 160 steps" in texts(asked(records, steps=(0, 159)))


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

    assert "all ranks have values in 20 of 20 steps" in said


def noisy(seed: int, level: float, since: int, by: float) -> list[float]:
    rng = np.random.default_rng(seed)
    return [level + 0.05 * rng.normal() + (by if step >= since else 0.0) for step in range(160)]


def test_a_metric_that_falls_when_a_rate_changes_coincided_and_is_never_caused() -> None:
    reward = noisy(1, 0.8, 100, -0.4)

    answer = asked(job(values=lambda step: {"reward": reward[step], "lr": 0.1 if step < 101 else 0.5}), metric="reward")

    assert (answer.verdict, answer.first) == ("coincided", 100)
    assert answer.sentences[0].startswith("reward fell at step 100 from 0.8")
    assert "lr went from 0.1 to 0.5 at step 101" in answer.sentences[1]
    assert answer.effect == pytest.approx(-0.4, abs=0.05)


def test_a_metric_that_falls_alone_cannot_be_told() -> None:
    reward = noisy(1, 0.8, 100, -0.4)

    answer = asked(job(values=lambda step: {"reward": reward[step]}), metric="reward", steps=(130, 130))

    assert (answer.verdict, answer.first) == ("cannot tell", 100)
    assert "log what may" in answer.sentences[1]


def test_another_role_is_met_in_time() -> None:
    reward = noisy(1, 0.8, 100, -0.4)
    rows = job(values=lambda step: {"reward": reward[step]})
    times = {row.step: row.time for row in rows if isinstance(row, StepRecord)}
    rollouts = [
        StepRecord(0, "generator", "rollout", number, 0, times[2 * number] + 0.001, {
            "generator/rollout/version": 390.0 if number >= 50 else 410.0
        })
        for number in range(80)
    ]  # fmt: skip

    answer = asked(numbered([*rows, *rollouts]), metric="reward")

    assert answer.verdict == "coincided"
    assert "generator/rollout/version went from 410 to 390 at rollout 50 (beside step 101)" in answer.sentences[1]


def test_a_device_that_is_measured_by_the_clock_is_met_in_time() -> None:
    rows = job(slow=SLOW, extra_s=0.4)
    begin, end = (
        next(row.time for row in rows if isinstance(row, StepRecord) and row.step == step) for step in (80, 119)
    )
    clocks = [
        StepRecord(0, "trainer", "time", second, 0, 1000.0 + second * 0.05, {
            "hw.gpu.clock": 700.0 if begin - 0.4 <= 1000.0 + second * 0.05 <= end else 1980.0
        })
        for second in range(420)
    ]  # fmt: skip

    answer = asked(numbered([*rows, *clocks]))

    assert answer.verdict == "coincided"
    assert "hw.gpu.clock went from 1980 to 700" in answer.sentences[1]


def test_a_metric_that_is_no_longer_a_number_is_told_with_its_step() -> None:
    answer = asked(job(values=lambda step: {"loss": 1.0 / (step + 1) if step < 70 else math.nan}))

    assert answer.about == "loss"
    assert answer.sentences[0] == "loss became nan at step 70; the step before had 0.01429."
    assert answer.sentences[2].startswith("Norms of gradients and activations")


def test_of_a_random_walk_nothing_is_told() -> None:
    walk = np.cumsum(np.random.default_rng(5).normal(size=160)).tolist()

    answer = asked(job(values=lambda step: {"walk": walk[step]}), metric="walk")

    assert answer.verdict == "cannot tell"
    assert "follow one another" in answer.sentences[1]


def test_a_short_metric_says_how_many_values_it_takes() -> None:
    answer = asked(job(steps=20, values=lambda step: {"reward": float(step > 10)}), metric="reward")

    assert "takes 44 values to be told from noise, and there are 20" in answer.sentences[1]


def test_a_metric_that_is_not_there_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'reward'"):
        asked(job(values=lambda step: {"reward": 1.0}), metric="rewrad")
    with pytest.raises(ConfigError, match=r"no steps of axis 'rollout' .* It has: axis 'step' of role 'trainer'"):
        asked(job(), steps=(1, 2), axis="rollout")


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


def test_a_stage_with_more_work_from_the_first_step_on_caused_it_and_no_rank_is_accused() -> None:
    found = no_rank("stage", "stage 2", "", since=0, last=159, saved_s=0.004)

    answer = asked(job(findings=[found]))

    assert (answer.verdict, answer.first, answer.last) == ("caused", 0, 159)
    assert answer.effect == pytest.approx(0.004)
    assert answer.sentences[0].endswith("ms each: 4 ms (33%) more than without what was found; no step was without it.")
    assert answer.sentences[1] == (
        "Caused: stage 2 had 1.77 × the work of the other stages, steps 0-159; none of its ranks was slow."
    )
    assert answer.sentences[2].startswith("With the work spread over all stages these steps are 4 ms shorter")
    assert "rank" not in answer.sentences[0] + answer.evidence[0].text


def test_a_rank_that_is_slow_from_the_first_step_on_caused_what_a_step_is_shorter_without_it() -> None:
    found = finding(since=0, until=159, extra_s=0.005)

    answer = asked(job(slow=range(160), extra_s=0.005, findings=[found]))

    assert answer.verdict == "caused"
    assert answer.effect == pytest.approx(0.005)
    assert "rank 2 was slow in forward, steps 0-159" in answer.sentences[1]


@pytest.mark.feature(
    "M38", "better", "a slow device is told from a slow program: `otel-ml why` names the rank in the test's own timer"
)
def test_a_rank_that_is_slow_in_the_test_of_the_hardware_is_named_with_it() -> None:
    found = finding(phase="hardware_test/matmul", since=80, until=119, extra_s=0.0149)

    answer = asked(job(slow=SLOW, extra_s=0.015, findings=[found]))

    assert answer.verdict == "caused"
    assert "rank 2 was slow in hardware_test/matmul, steps 80-119" in answer.sentences[1]


def test_what_saves_next_to_nothing_has_nothing_to_explain() -> None:
    found = no_rank("stage", "stage 2", "", since=0, last=159, saved_s=0.0002)

    assert asked(job(findings=[found]), steps=(0, 159)).verdict == "cannot tell"


def test_times_that_follow_the_data_coincided_and_nobody_is_accused() -> None:
    found = no_rank("shape", "nobody", "forward and backward", since=0, last=159, saved_s=0.003)

    answer = asked(job(findings=[found]))

    assert (answer.verdict, answer.explained) == ("coincided", 0.0)
    assert "followed the data (forward and backward varied together), and nobody was slow" in answer.sentences[1]
    assert answer.sentences[2] == "Where the longest rank is given as much as the mean one, a step is 3 ms shorter."
    assert "rank None" not in texts(answer)


def test_the_metric_that_goes_with_the_shape_of_the_data_is_named() -> None:
    found = no_rank("shape", "nobody", "forward and backward", since=0, last=159, saved_s=0.003)
    rows = job(findings=[found])
    seconds = {row.step: sum(row.values[name] for name in ACCOUNT) for row in rows if isinstance(row, StepRecord)}

    answer = asked(
        job(findings=[found], values=lambda step: {"tokens/max": 4e5 * seconds[step], "tokens": 2048.0 + step % 7})
    )

    assert answer.verdict == "coincided"
    assert "step time follows tokens/max (r = 1.00)" in answer.sentences[1]
    assert "tokens (r" not in texts(answer)


def varying(values: Callable[[int, float], Mapping[str, float]]) -> Answer:
    """Ask why of a run whose steps take 10 ms, times what a wide distribution gives, and a little less each time."""
    rng = np.random.default_rng(4)
    rows: list[Record] = []
    for step in range(160):
        seconds = 0.01 * rng.lognormal(0.0, 0.4) + 0.00002 * (160 - step)
        timers = {"time/exposed/forward": seconds, "time/exposed/forward/rank": float(step % 4)}
        found = {**timers, **values(step, seconds)}
        rows.append(StepRecord(0, "trainer", "step", step, 0, 1000.0 + step, found))
    return asked(numbered(rows))


def test_a_healthy_run_whose_steps_go_with_their_tokens_has_no_culprit_and_names_these() -> None:
    answer = varying(lambda step, seconds: {"tokens": 2e5 * seconds, "loss": 1 / (step + 1)})

    assert answer.verdict == "coincided"
    assert "Coincided: step time follows tokens (r = 1.00); nobody was slow" in answer.sentences[1]


def test_what_falls_as_step_time_falls_is_not_what_it_follows() -> None:
    rng = np.random.default_rng(9)

    answer = varying(lambda step, seconds: {"loss": 1 / (step + 1), "seen": 0.1 * step + rng.normal()})

    assert answer.verdict == "cannot tell"


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


def test_a_metric_that_falls_and_recovers_is_asked_about_for_its_fall() -> None:
    noise = np.random.default_rng(5).normal(scale=0.02, size=240)

    def reward(step: int) -> dict[str, float]:
        return {"reward": (0.5 if 80 <= step < 140 else 1.3 if step >= 140 else 1.0) + noise[step]}

    answer = asked(job(steps=240, values=reward), "reward")

    assert answer.first == 80, "and not for the way back, which is larger"
    assert answer.sentences[0].startswith("reward fell at step 80")
