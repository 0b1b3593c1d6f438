"""Steps that wait for samples: caused by the generator that gives fewer than before, and by nobody else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from otel_ml_exporters.records import RunStatus, StepRecord
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from tests.unit.otel_ml_service.why.jobs import numbered

STEPS, SINCE, BATCH = 140, 80, 48.0
RATES = (20.0, 20.0, 20.0)


def asked(
    rates: Callable[[int], tuple[float, ...]], work: Callable[[int], float], *, waits_in: str = "rl/loop/idle"
) -> Answer:
    """Ask why steps take what they take: until a batch is there, or until the work of the one before is done."""
    rng = np.random.default_rng(2)
    rows, now = [], 1000.0
    for step in range(STEPS):
        works = work(step) * (1 + 0.01 * rng.normal())
        took = max(BATCH / sum(rates(step)) * (1 + 0.01 * rng.normal()), works)
        now += took
        samples = {
            f"consumed/samples/generator/{rank}": BATCH * rate / sum(rates(step))
            for rank, rate in enumerate(rates(step))
        }
        timers = {f"time/{waits_in}": took - works, "time/update": works, "time/step": took}
        rows.append(StepRecord(0, "trainer", "step", step, 0, now, {**timers, **samples}))
    return why(facts_of("run", numbered([*rows, RunStatus(0, now, "finished")])), Question())


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


def test_where_all_generators_are_slower_none_is_accused() -> None:
    answer = asked(all_slower, lambda _: 0.1)

    assert answer.verdict != "caused"
    assert "generator" not in " ".join(answer.sentences)


def test_a_trainer_that_is_slower_by_itself_accuses_no_generator() -> None:
    answer = asked(lambda _: RATES, lambda step: 1.4 if step >= SINCE else 0.1)

    assert answer.verdict != "caused"
    assert "generator" not in " ".join(answer.sentences)


def test_a_trainer_that_is_slower_accuses_nobody_when_a_generator_is_slower_too_and_does_not_matter() -> None:
    answer = asked(one_slower, lambda step: 1.6 if step >= SINCE else 0.1)

    assert answer.verdict != "caused"
