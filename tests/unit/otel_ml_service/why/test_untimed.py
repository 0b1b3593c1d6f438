"""What no timer has of steps is told, with the steps in which it is much more than usual, and no cause is claimed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import pytest

from otel_ml_exporters.records import RunStatus, Span, StepRecord
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why, why_steps
from otel_ml_service.why.facts import RunFacts, facts_of
from tests.unit.otel_ml_service.why.jobs import numbered

PAUSES = (30, 55)
MS = 1_000_000
Timers = Callable[[float], Mapping[str, float]]
"""Seconds in no timer → what a step of 10 ms more records."""


def of_one_rank(untimed_s: float) -> Mapping[str, float]:
    return {"time/forward": 0.010, "time/step": 0.010 + untimed_s}


def of_nested_timers(untimed_s: float) -> Mapping[str, float]:
    return {"time/train": 0.010, "time/forward": 0.009, "time/step": 0.010 + untimed_s}


def without_step(untimed_s: float) -> Mapping[str, float]:
    return {"time/forward": 0.010}


def of_many_ranks(untimed_s: float) -> Mapping[str, float]:
    account = {"time/exposed/forward": 0.010, "time/exposed/untimed": untimed_s}
    return {**account, **{f"{name}/rank": 0.0 for name in account}}


def run(timers: Timers, untimed: Callable[[int], float], *, restart: int | None = None) -> RunFacts:
    rows, now, spans = [], 1000.0, list[Span]()
    for step in range(80):
        now += 0.010 + untimed(step)
        attempt = int(restart is not None and step >= restart)
        rows.append(StepRecord(0, "trainer", "step", step, attempt, now, timers(untimed(step))))
        begin, end = round((now - 0.010) * 1e9), round(now * 1e9)
        whole = f"step{step}" if "time/step" in timers(0.0) else None
        if whole is not None:
            began = begin - round(untimed(step) * 1e9)
            spans.append(Span("aa", whole, None, "step", began, end, "trainer", 0, "step", step))
        names = [name.removeprefix("time/") for name in timers(0.0) if name in {"time/train", "time/forward"}]
        spans += [
            Span("aa", f"{name}{step}", whole, name, begin + inside, end - inside, "trainer", 0, "step", step)
            for inside, name in enumerate(names)
        ]
    facts = facts_of("run", numbered([*rows, RunStatus(0, now, "finished")]))
    facts.spans = lambda *_: iter(spans)
    return facts


def asked(facts: RunFacts, *steps: int) -> Answer:
    return why(facts, Question(first=steps[0], last=steps[-1]) if steps else Question())


def at_pauses(seconds: float) -> Callable[[int], float]:
    return lambda step: seconds if step in PAUSES else 0.0001


@pytest.mark.parametrize("timers", [of_one_rank, of_nested_timers, without_step, of_many_ranks])
def test_a_pause_in_the_body_of_a_step_is_told_with_its_steps_and_what_to_do(timers: Timers) -> None:
    answer = asked(run(timers, at_pauses(0.3)))

    assert answer.verdict == "cannot tell"
    assert answer.sentences[0].startswith("Nothing stands out in 80 steps, but 60")
    assert "of the time) is in no timer: 300 ms each in steps 30 and 55, usually 100 µs." in answer.sentences[0]
    assert answer.sentences[1] == "Cannot tell: what was done there is not timed, and nobody is slow for it."
    assert answer.sentences[2].startswith('Put `with otel_ml.timed("checkpoint"):`, or what it is, around it; look at ')


def test_what_no_step_has_a_timer_for_is_told_as_what_is_usual() -> None:
    answer = asked(run(of_one_rank, lambda _: 0.010))

    assert "800 ms (50 % of the time) is in no timer: 10 ms a step." in answer.sentences[0]
    assert 'timed("forward")' in answer.sentences[2]


@pytest.mark.parametrize("timers", [of_one_rank, of_nested_timers, without_step, of_many_ranks])
def test_next_to_nothing_in_no_timer_is_not_told(timers: Timers) -> None:
    answer = asked(run(timers, lambda _: 0.0001))

    assert "no timer" not in " ".join([*answer.sentences, *(one.text for one in answer.evidence)])


def test_a_step_that_is_asked_for_says_how_much_of_it_no_timer_has() -> None:
    answer = asked(run(of_one_rank, at_pauses(0.3)), 30)

    assert "300 ms (96.8 %) of step 30 is in no timer" in [one.text for one in answer.evidence]
    assert "is in no timer, and" in answer.sentences[1]
    assert answer.sentences[2] == (
        'Put `with otel_ml.timed("checkpoint"):`, or what it is, around what is in no timer; look at step 30.'
    )


def test_timers_that_overlap_and_fill_a_step_leave_none_of_it_untimed() -> None:
    rows = [
        StepRecord(0, "trainer", "step", step, 0, 1000.0 + step * 0.006, {
            "time/a": 0.004, "time/b": 0.004, "time/step": 0.006
        })
        for step in range(60)
    ]  # fmt: skip
    facts = facts_of("run", numbered([*rows, RunStatus(0, 1001.0, "finished")]))
    facts.spans = lambda *_: iter(
        Span("aa", f"{name}{step}", inside and f"{inside}{step}", name, int(at) + begin * MS, int(at) + end * MS,
             "trainer", 0, "step", step)
        for step in range(60)
        for at in [1e12 + (step - 1) * 6e6]
        for name, inside, begin, end in (("step", None, 0, 6), ("a", "step", 0, 4), ("b", "step", 2, 6))
    )  # fmt: skip

    for answer in (asked(facts), asked(facts, 30)):
        assert "no timer" not in " ".join([*answer.sentences, *(one.text for one in answer.evidence)])


def test_a_restart_is_not_time_in_no_timer() -> None:
    answer = asked(run(without_step, lambda step: 60.0 if step == 40 else 0.0001, restart=40))

    assert "no timer" not in " ".join([*answer.sentences, *(one.text for one in answer.evidence)])


def test_of_all_steps_together_the_spans_are_looked_at_once_for_each_thing_to_tell() -> None:
    facts, read = run(of_one_rank, at_pauses(0.3)), list[object]()
    stored = facts.spans

    def noted(*about: object) -> Iterator[Span]:
        read.append(about)
        return stored(*about)

    facts.spans = noted

    assert why_steps(facts) is not None

    # What no timer has: as evidence beside the answer, and as what the run lost.
    assert max(Counter(read).values()) == 2
