"""Steps that take longer and longer have no level that changes, and are told as what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from otel_ml_service.why.ask import Question, why
from otel_ml_service.why.facts import facts_of
from otel_ml_service.why.longer_and_longer import grow
from otel_ml_service.why.step_time import StepTime
from tests.unit.otel_ml_service.why.asking import SLOW, asked, texts
from tests.unit.otel_ml_service.why.jobs import Values, job


def cache(seconds: Callable[[int], float]) -> Values:
    def values(step: int) -> Mapping[str, float]:
        return {"time/exposed/cache": seconds(step), "time/exposed/cache/rank": 0.0}

    return values


@pytest.mark.parametrize("steps", [None, (0, 399)])
def test_a_cache_that_grows_is_told_with_how_long_steps_were_and_are(steps: tuple[int, int] | None) -> None:
    answer = asked(job(steps=400, values=cache(lambda step: 0.0001 * step)), steps=steps)

    assert answer.verdict == "cannot tell"
    assert answer.sentences == (
        "Steps 0-399 took longer and longer: 17 ms each in steps 0-99, 46.9 ms in steps 300-399.",
        "Cannot tell: +30 ms of it is in cache, and nobody was found slow.",
        "Look for what grows with each step: a list that is kept, a cache, a file; look at step 399.",
    )
    assert answer.account[0].name == "cache"
    assert "rank" not in " ".join(answer.sentences)


def test_checkpoints_do_not_hide_it() -> None:
    def seconds(step: int) -> float:
        return 0.0003 * step + (0.4 if step % 20 == 19 else 0.0)

    assert "took longer and longer" in asked(job(steps=400, values=cache(seconds))).sentences[0]


@pytest.mark.parametrize(
    "records",
    [
        job(steps=400),
        job(steps=400, values=cache(lambda step: 0.0000025 * step)),
        job(steps=400, values=cache(lambda step: 0.0001 * (400 - step))),
        job(steps=400, values=cache(lambda step: 0.01 * float(np.random.default_rng(step).lognormal(0.0, 0.5)))),
        job(steps=30, values=cache(lambda step: 0.001 * step)),
        job(slow=SLOW, extra_s=0.015),
    ],
    ids=["as usual", "little", "shorter and shorter", "scatter", "few steps", "another level"],
)
def test_what_does_not_grow_is_not_told_to_grow(records: list) -> None:  # type: ignore[type-arg]
    assert "longer and longer" not in texts(asked(records))


@pytest.mark.parametrize("at", [60, 78, 90])
def test_another_level_is_no_growth_whatever_the_steps_on_either_side_of_it_do(at: int) -> None:
    def seconds(step: int) -> float:
        return (1.0 if step < at else 1.6) + 1e-6 * step  # in order by a hair on both sides

    steps = range(140)

    assert grow(StepTime("clock", {step: seconds(step) for step in steps}, {}, {}), steps) is None


def test_what_grows_with_the_data_is_told_as_that() -> None:
    lengths = np.linspace(512.0, 4096.0, 400) * np.random.default_rng(1).lognormal(0.0, 0.2, 400)

    def values(step: int) -> Mapping[str, float]:
        return {"tokens": float(lengths[step]), **cache(lambda _: 2e-5 * float(lengths[step]))(step)}

    answer = asked(job(steps=400, values=values))

    assert answer.verdict == "coincided"
    assert "step time follows tokens" in answer.sentences[1]


def test_of_a_run_that_goes_on_what_came_since_the_last_question_counts() -> None:
    records = job(steps=400, values=cache(lambda step: 0.0001 * max(0, step - 100)))
    early, late = records[:100], records[100:]
    facts = facts_of("run", early)

    assert "longer and longer" not in why(facts, Question()).sentences[0]
    for record in late:
        facts.add(record)
        facts.history.add(record)

    assert why(facts, Question()) == asked(records)
    assert "longer and longer" in asked(records).sentences[0]
