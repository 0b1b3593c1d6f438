"""Steps that wait for samples: caused by the generator that gives fewer than before, and by nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from otel_ml_exporters.records import RunStatus, Span, StepRecord
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.jobs import numbered

STEPS, SINCE, BATCH = 140, 80, 48.0
MS = 1_000_000
RATES = (20.0, 20.0, 20.0)


def asked(
    rates: Callable[[int], tuple[float, ...]],
    work: Callable[[int], float],
    *,
    waits_in: str = "rl/loop/idle",
    rollout: Callable[[int], Mapping[str, float]] | None = None,
    is_linked: bool = True,
) -> Answer:
    """Ask why steps take what they take: until a batch is there, or until the work of the one before is done.

    Args:
        rates: step → samples a second of each generator.
        work: step → seconds that the trainer works.
        waits_in: what it waits in.
        rollout: step of the trainer → the timers of a generator's rollouts at that time.
        is_linked: whether the trainer says whose samples it consumes.
    """
    rng = np.random.default_rng(2)
    rows, spans, now, made_until, rollouts = [], list[Span](), 1000.0, 1000.0, count()
    for step in range(STEPS):
        works = work(step) * (1 + 0.01 * rng.normal())
        took = max(BATCH / sum(rates(step)) * (1 + 0.01 * rng.normal()), works)
        now += took
        samples = {
            f"consumed/samples/generator/{rank}": BATCH * rate / sum(rates(step))
            for rank, rate in enumerate(rates(step))
        }
        timers = {f"time/{waits_in}": took - works, "time/update": works, "time/step": took}
        rows.append(StepRecord(0, "trainer", "step", step, 0, now, {**timers, **(samples if is_linked else {})}))
        spans += spans_of(step, now - took, {waits_in: took - works, "update": works})
        while rollout is not None and made_until < now:
            own = {f"generator/rollout/time/{name}": seconds for name, seconds in rollout(step).items()}
            made_until += sum(own.values())
            rows.append(StepRecord(0, "generator", "rollout", next(rollouts), 0, made_until, own))
    facts = facts_of("run", numbered([*rows, RunStatus(0, now, "finished")]))
    facts.spans = lambda begin, end, *_: (one for one in spans if begin <= one.end_ns <= end + MS)
    return why(facts, Question(axis="step"))


def spans_of(step: int, begin: float, timers: Mapping[str, float]) -> Iterator[Span]:
    """Yield the spans of a step of one rank, whose timers follow each other."""
    whole = Span("aa", f"{step}", None, "step", round(begin * 1e9), 0, "trainer", 0, "step", step)
    yield replace(whole, end_ns=round((begin + sum(timers.values())) * 1e9))
    for name, seconds in timers.items():
        begin_ns, begin = round(begin * 1e9), begin + seconds
        yield replace(
            whole, span_id=name + whole.span_id, parent_id=whole.span_id, name=name, start_ns=begin_ns,
            end_ns=round(begin * 1e9),
        )  # fmt: skip


def one_slower(step: int) -> tuple[float, ...]:
    return (20.0, 5.0, 20.0) if step >= SINCE else RATES


def all_slower(step: int) -> tuple[float, ...]:
    return (13.0, 13.0, 13.0) if step >= SINCE else RATES


@pytest.mark.parametrize("waits_in", ["rl/loop/idle", "fetch"])
def test_a_generator_that_gives_fewer_samples_is_the_cause_of_longer_steps_of_who_waits_for_them(waits_in) -> None:
    answer = asked(one_slower, lambda _: 0.1, waits_in=waits_in)

    assert (answer.verdict, answer.first) == ("caused", SINCE)
    assert answer.explained > 0.9
    assert answer.sentences[1].startswith("Caused: generator 1 gave 5.0")
    assert " samples a second instead of 19.9" in answer.sentences[1] or "instead of 20" in answer.sentences[1]
    assert answer.sentences[2].startswith("With as many of generator 1 as before these steps are 26")


def slower_rollouts(step: int) -> Mapping[str, float]:
    return {"generate": 0.154 if step >= SINCE else 0.1, "wait_for_weights": 0.01}


def test_where_all_generators_are_slower_that_is_the_cause_and_none_of_them_is_accused() -> None:
    answer = asked(all_slower, lambda _: 0.1, rollout=slower_rollouts)

    assert (answer.verdict, answer.first) == ("caused", SINCE)
    assert answer.explained > 0.9
    cause, without = answer.sentences[1:]
    assert cause.startswith("Caused: all 3 generators gave fewer samples, 39")
    assert " a second instead of " in cause
    assert "they took 154 ms in generate instead of 100 ms; " in cause
    assert without.startswith("With as many as before these steps are 4")
    assert any("the steps wait for samples" in one.text for one in answer.evidence)


@pytest.mark.parametrize(
    "rollout",
    [None, lambda step: {"generate": 0.1, "wait_for_queue": 0.054 if step >= SINCE else 0.001}],
    ids=["no timers of theirs", "they wait, too"],
)
def test_without_their_own_times_it_is_told_that_all_gave_fewer_and_not_that_they_are_slower(
    rollout: Callable[[int], Mapping[str, float]] | None,
) -> None:
    answer = asked(all_slower, lambda _: 0.1, rollout=rollout)

    assert answer.verdict != "caused"
    assert "where it waits for samples, and all 3 generators gave fewer, 39" in answer.sentences[1]
    assert "whether they were slower" in answer.sentences[1]


def test_without_links_it_is_told_what_would_tell_whose_samples_it_waits_for() -> None:
    answer = asked(all_slower, lambda _: 0.1, rollout=slower_rollouts, is_linked=False)

    assert answer.verdict != "caused"
    assert (
        "in rl/loop/idle, where it waits; `otel_ml.consumed(contexts)` would tell for whose samples"
        in (answer.sentences[1])
    )


def test_a_single_rank_whose_data_come_later_is_not_said_to_wait_for_anybody() -> None:
    answer = asked(all_slower, lambda _: 0.1, waits_in="fetch", is_linked=False)

    assert answer.sentences[1].endswith("a rank alone has no peers to be compared with.")


def test_a_trainer_that_is_slower_by_itself_accuses_no_generator() -> None:
    answer = asked(lambda _: RATES, lambda step: 1.4 if step >= SINCE else 0.1)

    assert answer.verdict != "caused"
    assert "generator" not in " ".join(answer.sentences)


def test_a_trainer_that_is_slower_accuses_nobody_when_a_generator_is_slower_too_and_does_not_matter() -> None:
    answer = asked(one_slower, lambda step: 1.6 if step >= SINCE else 0.1)

    assert answer.verdict != "caused"
