"""Time that a typical step does not have: how much, in how many steps, in what, how often, and nobody is accused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from otel_ml_exporters.records import JsonValue, Record, Span, SpanBatch, StepRecord
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import RunFacts, facts_of
from tests.unit.otel_ml_service.why.asking import SLOW, asked, texts
from tests.unit.otel_ml_service.why.jobs import Values, finding, job, no_rank, numbered

Of = Callable[[int], float]
NOISE = np.random.default_rng(3)


def every(number: int, seconds: float) -> Of:
    return lambda step: seconds if step % number == number - 1 else 0.0


def at(seconds: float, *steps: int) -> Of:
    return lambda step: seconds if step in steps else 0.0


def phases(**of: Of) -> Values:
    """Return what phases take more in a step; the steps of `job()` take 12 ms."""

    def values(step: int) -> Mapping[str, float]:
        found = {f"time/exposed/{name}": seconds(step) for name, seconds in of.items()}
        return {**found, **{f"{name}/rank": 0.0 for name in found}}

    return values


def pause(phase: str, *, of_rank: int | None = None) -> tuple[JsonValue, ...]:
    level, kind, _, *rest, _, saved_s = no_rank("pause", "nobody", phase, since=19, last=159, saved_s=0.01)
    return (level, kind, of_rank, *rest, "nobody" if of_rank is None else f"rank {of_rank}", saved_s)


CHECKPOINTS = phases(checkpoint=every(20, 0.4))


@pytest.mark.parametrize(
    "findings",
    [[], [pause("checkpoint")], [pause("checkpoint", of_rank=0)]],
    ids=["not found", "of all", "of rank 0"],
)
@pytest.mark.parametrize("steps", [None, (0, 159)])
def test_a_checkpoint_now_and_then_is_told_with_what_it_costs_and_is_the_cause(
    findings: list[tuple[JsonValue, ...]], steps: tuple[int, int] | None
) -> None:
    answer = asked(job(values=CHECKPOINTS, findings=findings), steps=steps)

    assert answer.sentences == (
        "Steps 0-159 took 12 ms each, but 8 of them took 3.2 s more in all (62.5 % of the time): "
        "+400 ms of checkpoint every 20th step (19, 39, 59 and 5 more).",
        "Caused: checkpoint; 100 % of it goes with that, and nobody was found slow.",
        f"Without that these steps are 3.2 s shorter in all; look at step {answer.look_at[0].step}.",
    )
    assert (answer.verdict, answer.first, answer.last) == ("caused", 0, 159)
    assert answer.effect == pytest.approx(3.2 / 160, rel=0.01)
    assert answer.look_at[0].step % 20 == 19
    checkpoint = answer.account[0]
    assert (checkpoint.name, checkpoint.usual_s, checkpoint.steps) == ("checkpoint", 0.0, 8)
    assert checkpoint.seconds == pytest.approx(0.4)
    assert answer.adds_up
    assert "left out" not in texts(answer)


def test_what_a_busy_host_does_to_a_few_other_steps_is_not_told_beside_it() -> None:
    values = phases(checkpoint=every(20, 0.4), backward=at(0.004, 7, 33, 107), forward2=at(0.01, 58))

    answer = asked(job(values=values))

    assert "8 of them" in answer.sentences[0]
    assert answer.sentences[0].endswith("of the time): +400 ms of checkpoint every 20th step (19, 39, 59 and 5 more).")
    assert answer.account[0].steps == 8


def test_one_checkpoint_that_is_asked_for_is_caused_by_it() -> None:
    answer = asked(job(values=CHECKPOINTS, findings=[pause("checkpoint", of_rank=0)]), steps=(39, 39))

    assert answer.verdict == "caused"
    assert answer.sentences == (
        "Step 39 took 412 ms instead of 12 ms: +400 ms of checkpoint.",
        "Caused: checkpoint; 100 % of it goes with that, and nobody was found slow.",
        "Without that it is 400 ms shorter in all; look at step 39.",
    )


def test_two_things_that_come_now_and_then_are_told_apart() -> None:
    answer = asked(job(steps=400, values=phases(checkpoint=every(20, 0.4), evaluation=every(50, 1.5))))

    assert answer.verdict == "caused"
    assert answer.sentences[0].endswith(
        "(80.7 % of the time): +1.5 s of evaluation every 50th step (49, 99, 149 and 5 more) "
        "and +400 ms of checkpoint every 20th step (19, 39, 59 and 17 more)."
    )
    assert answer.sentences[1].startswith("Caused: evaluation and checkpoint; 100 % of it goes with them")


@pytest.mark.parametrize(
    ("values", "told", "why_not", "then"),
    [
        (
            phases(optimizer=every(5, 0.02)),
            "32 of them took 640 ms more in all (25 % of the time): +20 ms of optimizer every 5th step (4, 9, 14 ",
            "99.9 % of it is in optimizer, and nobody",
            "Look for what the program does every 5th step",
        ),
        (
            phases(optimizer=every(2, 0.02)),
            "80 of them took 1.6 s more in all (45.5 % of the time): +20 ms of optimizer every 2nd step (1, 3, 5 ",
            "100 % of it is in optimizer, and nobody",
            "Look for what the program does every 2nd step",
        ),
        (
            phases(backward=at(40.0, 80)),
            "step 80 took 40 s more (95.4 % of the time): +40 s of backward.",
            "100 % of it is in backward, and nobody",
            "Look at step 80: the longest one, 40 s.",
        ),
        (
            phases(backward=at(0.3, 60, 61, 62, 63, 64)),
            "5 of them took 1.5 s more in all (43.9 % of the time): +300 ms of backward in steps 60-64.",
            "100 % of it is in backward, and nobody",
            "Look at step 6",
        ),
        (
            phases(all_gather=every(25, 0.3)),
            "6 of them took 1.8 s more in all (48.4 % of the time): +300 ms of all_gather every 25th step",
            "100 % of it is in all_gather, where ranks wait for each other, and nobody",
            "Look for what the program does every 25th step",
        ),
        (
            phases(backward=at(30.0, 0)),
            "step 0 took 30 s more (94 % of the time): +30 s of backward.",
            "it is the first step, in which programs compile, allocate and fill caches, and nobody",
            "Look at step 0: ",
        ),
        (
            phases(**{f"part{number}": every(20, 0.05) for number in range(8)}),
            "8 of them took 3.2 s more in all (62.5 % of the time): 400 ms each every 20th step (19, 39, 59 ",
            "no timer has a fifth of it, and nobody",
            "Look for what the program does every 20th step",
        ),
    ],
    ids=["every fifth", "every second", "one", "five in a row", "waiting", "warm-up", "in all phases"],
)
def test_what_names_no_cause_is_told_with_its_phase_and_nobody_can_tell(
    values: Values, told: str, why_not: str, then: str
) -> None:
    answer = asked(job(values=values))

    assert answer.verdict == "cannot tell"
    assert answer.sentences[0].startswith(f"Steps 0-159 took 12 ms each, but {told}")
    assert answer.sentences[1].startswith(f"Cannot tell: {why_not} was found slow.")
    assert answer.sentences[2].startswith(then)


def test_a_heavy_tail_is_told_as_steps_that_come_as_they_like() -> None:
    lengths = 0.01 * NOISE.lognormal(0.0, 1.0, 160)

    answer = asked(job(values=phases(generate=lambda step: float(lengths[step]))))

    assert answer.verdict == "cannot tell"
    assert "every" not in answer.sentences[0]
    assert "of generate in steps " in answer.sentences[0]


@pytest.mark.parametrize(
    "values",
    [
        phases(backward=at(0.003, 40, 80)),
        phases(generate=lambda step: 0.01 * float(np.random.default_rng(step).lognormal(0.0, 0.4))),
        phases(forward=lambda step: 0.012 * (1 + 0.05 * float(np.random.default_rng(step).normal()))),
    ],
    ids=["next to nothing", "lengths of sequences", "noise"],
)
def test_what_costs_little_or_is_how_steps_scatter_is_not_told(values: Values) -> None:
    assert asked(job(values=values)).sentences[0].startswith("Nothing stands out in 160 steps")


def test_a_slow_rank_comes_first_and_the_evidence_says_what_long_steps_cost() -> None:
    found = [finding(since=80, until=119, extra_s=0.0149), pause("checkpoint")]

    answer = asked(job(slow=SLOW, extra_s=0.015, findings=found, values=CHECKPOINTS))

    assert answer.sentences[1].startswith("Caused: rank 2 was slow in forward")
    assert "2 steps with a long pause, 854 ms in all, are left out" in texts(answer)
    assert "the job paused in checkpoint, and nobody was slow, steps 19-159" in texts(answer)


def test_a_metric_that_changed_comes_before_the_first_step_and_after_what_comes_regularly() -> None:
    def fell(step: int) -> Mapping[str, float]:
        return {"reward": (0.9 if step < 80 else 0.3) + 0.01 * (step % 7)}

    lengths = 0.2 * np.random.default_rng(9).lognormal(0.0, 1.0, 160)
    tail = asked(job(values=lambda step: {**phases(generate=lambda at: float(lengths[at]))(step), **fell(step)}))
    first = asked(job(values=lambda step: {**phases(backward=at(30.0, 0))(step), **fell(step)}))
    regular = asked(job(values=lambda step: {**CHECKPOINTS(step), **fell(step)}))

    assert (tail.about, first.about) == ("reward", "reward")
    assert regular.sentences[1].startswith("Caused: checkpoint")


def test_steps_that_are_long_with_their_data_are_told_as_that() -> None:
    tokens = 1000 * NOISE.lognormal(0.0, 1.0, 160)

    def values(step: int) -> Mapping[str, float]:
        return {"tokens": float(tokens[step]), **phases(generate=lambda at: 1e-5 * float(tokens[at]))(step)}

    answer = asked(job(values=values))

    assert answer.verdict == "coincided"
    assert "step time follows tokens" in answer.sentences[1]


def records_of_one_rank(step_s: Callable[[int], Mapping[str, float]]) -> list[Record]:
    """Return a run of one rank, which has no published account, only timers and their spans."""
    rows: list[Record] = []
    end = 1000.0
    for step in range(160):
        parts = step_s(step)
        begin, end = end, end + sum(parts.values())
        timers = {f"time/{name}": seconds for name, seconds in parts.items()}
        timers |= {"time/train": sum(parts.values()), "time/step": sum(parts.values())}
        now = round(begin * 1e9)
        whole = Span("aa", f"train{step}", None, "train", now, round(end * 1e9), "trainer", 0, "step", step)
        spans = [whole]
        for name, seconds in parts.items():
            after = now + round(seconds * 1e9)
            spans.append(
                replace(whole, span_id=f"{name}{step}", parent_id=whole.span_id, name=name, start_ns=now, end_ns=after)
            )
            now = after
        rows += [StepRecord(0, "trainer", "step", step, 0, end, timers), SpanBatch(0, spans)]
    return numbered(rows)


def of_one_rank(step_s: Callable[[int], Mapping[str, float]], *, has_spans: bool = True) -> RunFacts:
    records = records_of_one_rank(step_s)
    facts = facts_of("run", records)
    every = [span for record in records if isinstance(record, SpanBatch) for span in record.spans]

    def spans(begin_ns: int, end_ns: int, *_: bytes) -> Iterator[Span]:
        ends = {span.step: span.end_ns for span in every if span.name == "train"}
        return (span for span in every if begin_ns <= ends[span.step] <= end_ns + 1)

    if has_spans:
        facts.spans = spans
    return facts


def with_checkpoints(step: int) -> Mapping[str, float]:
    return {"forward": 0.012, **({"checkpoint": 0.4} if step % 5 == 4 else {})}


def asked_of(facts: RunFacts) -> Answer:
    return why(facts, Question())


def test_of_one_rank_the_spans_of_some_of_the_long_steps_show_the_cause() -> None:
    answer = asked_of(of_one_rank(with_checkpoints))

    assert answer.verdict == "caused"
    assert answer.sentences[0] == (
        "Steps 0-159 took 12 ms each, but 32 of them took 12.8 s more in all (87 % of the time): "
        "+400 ms of checkpoint every 5th step (4, 9, 14 and 29 more)."
    )
    assert answer.account[0].name == "checkpoint"


def test_of_more_long_steps_than_are_looked_at_all_count() -> None:
    def parts(step: int) -> Mapping[str, float]:
        more = {"checkpoint": 0.4} if step % 10 == 9 else {"evaluation": 0.4} if step % 5 == 4 else {}
        return {"forward": 0.012, **more}

    answer = asked_of(of_one_rank(parts))

    assert answer.verdict == "caused"
    assert "32 of them took 12.8 s more" in answer.sentences[0]
    assert "+400 ms of checkpoint every 10th step" in answer.sentences[0]
    assert "+400 ms of evaluation every 10th step" in answer.sentences[0]
    assert answer.sentences[1].endswith("; 100 % of it goes with them, and nobody was found slow.")


def test_of_long_steps_that_are_far_apart_no_spans_between_are_read() -> None:
    facts = of_one_rank(lambda step: {"forward": 0.012, **({"checkpoint": 0.4} if step % 40 == 39 else {})})
    read = facts.spans
    facts.spans = lambda *of: islice(read(*of), 80)  # of a large file only so much is read at a time

    answer = asked_of(facts)

    assert answer.verdict == "caused"
    assert "4 of them took 1.6 s more" in answer.sentences[0]
    assert answer.account[0].steps == 4


def test_without_spans_the_innermost_timer_is_named_and_no_cause_is_claimed() -> None:
    answer = asked_of(of_one_rank(with_checkpoints, has_spans=False))

    assert answer.verdict == "cannot tell"
    assert "+400 ms of checkpoint every 5th step" in answer.sentences[0]
    assert answer.sentences[1] == (
        "Cannot tell: 100 % of it is in checkpoint, but without the spans of all ranks timers do not add up, "
        "and nobody was found slow."
    )
    assert not answer.adds_up


def test_what_many_timers_share_is_not_said_to_be_in_no_timer() -> None:
    rows: list[Record] = []
    for step in range(160):
        layer_s = 0.082 if step % 5 == 4 else 0.002
        timers = {f"time/layer{layer}": layer_s for layer in range(6)}
        ends = 1000.0 + 6 * (0.002 * (step + 1) + 0.08 * ((step + 1) // 5))
        rows.append(StepRecord(0, "trainer", "step", step, 0, ends, {**timers, "time/step": 6 * layer_s}))

    answer = asked(rows)

    assert "32 of them took 15.4 s more" in answer.sentences[0]
    assert "no timer has a fifth of it" in answer.sentences[1]
    assert "in no timer" not in " ".join(answer.sentences)


def test_a_restart_is_no_long_step() -> None:
    rows = job(is_timed=False, attempt=lambda step: int(step >= 80))
    later = [
        replace(row, time=row.time + 60.0 * (row.step >= 80)) if isinstance(row, StepRecord) else row for row in rows
    ]

    assert asked(later).sentences[0].startswith("Nothing stands out in 160 steps")


def test_what_one_rank_does_at_the_end_of_a_step_is_not_counted_again_as_the_waiting_of_the_others() -> None:
    # Rank 3 stands still for 0.4 s at the end of every tenth step; the others have begun the next one and wait in it.
    late = every(10, 0.4)
    of = phases(untimed=late, all_reduce=lambda step: (late(step - 1) if step else 0.0) + 0.002)
    records, passed = list[Record](), 0.0
    for row in job(values=of):
        if isinstance(row, StepRecord):
            passed += late(row.step)
            row = replace(row, time=row.time + passed)
        records.append(row)

    answer = asked(records)

    assert "16 of them took 6.4 s more in all" in answer.sentences[0]
    assert "every 10th step (9, 19, 29 and 13 more)" in answer.sentences[0]
    assert "all_reduce" not in answer.sentences[0]
    evidence = texts(answer)
    assert "6.4 s (76.9 % of the time) is in no timer: 400 ms each in steps 9, 19, 29 and 13 more" in evidence
