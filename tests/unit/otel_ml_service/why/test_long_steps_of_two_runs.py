"""A run that only lost more in a few long steps is not told to be as fast as another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from otel_ml_service.why.comparison import Comparison, compared
from otel_ml_service.why.facts import RunFacts, facts_of
from tests.unit.otel_ml_service.why.jobs import job


def run(phase: str, seconds: Callable[[int], float], **more: Any) -> RunFacts:
    def values(step: int) -> Mapping[str, float]:
        return {f"time/exposed/{phase}": seconds(step), f"time/exposed/{phase}/rank": 0.0}

    return facts_of("run", job(values=values, **more))


def every(number: int, seconds: float) -> Callable[[int], float]:
    return lambda step: seconds if step % number == number - 1 else 0.0


def checkpoints(number: int) -> RunFacts:
    return run("checkpoint", every(number, 0.4))


def told(a: RunFacts, b: RunFacts) -> Comparison:
    a.id, b.id = "a", "b"
    return compared(a, b)


def test_checkpoints_of_one_run_make_it_slower_and_are_the_cause() -> None:
    found = told(run("checkpoint", lambda _: 0.0), checkpoints(20))

    assert found.verdict == "caused"
    assert found.sentences[0].startswith(
        "B is slower by 20 ms a step: 8 of its steps took 3.2 s more in all (62.5 % of the time): +400 ms of "
        "checkpoint every 20th step (19, 39, 59 and 5 more). Apart from these, neither is sure to be faster: "
    )
    assert found.sentences[1] == "Caused in B: checkpoint; 100 % of it goes with that."


def test_who_has_more_checkpoints_is_slower_by_the_difference() -> None:
    found = told(checkpoints(10), checkpoints(20))

    assert found.sentences[0].startswith("A is slower by 20 ms a step: 16 of its steps took 6.4 s more in all")
    assert "every 10th step (9, 19, 29 and 13 more), in B 8 took 3.2 s more" in found.sentences[0]
    assert found.sentences[1].startswith("Caused in A: checkpoint")


def test_where_both_lost_as_much_it_is_the_usual_steps_that_count() -> None:
    assert told(checkpoints(20), checkpoints(20)).sentences[0].startswith("Neither is sure to be faster: ")


def test_long_steps_of_which_nothing_says_what_was_done_are_no_cause() -> None:
    found = told(run("backward", lambda _: 0.0), run("backward", every(20, 0.4)))

    assert found.verdict == "cannot tell"
    assert found.sentences[1] == "Cannot tell: 100 % of it is in backward, and nobody was found slow."


def test_a_first_step_that_compiles_does_not_make_a_run_slower() -> None:
    found = told(run("backward", lambda _: 0.0), run("backward", lambda step: 30.0 if step == 0 else 0.0))

    assert found.sentences[0].startswith("Neither is sure to be faster: ")


def test_a_run_that_is_slower_in_all_steps_is_told_for_that() -> None:
    found = told(run("backward", every(20, 0.02)), run("backward", lambda _: 0.01))

    assert found.sentences[0].startswith("B is slower: a step takes 22 ms in B and 12 ms in A")


def test_a_run_whose_steps_alternate_is_not_slower_than_one_that_loses_more_in_a_few() -> None:
    found = told(run("optimizer", every(2, 0.02)), checkpoints(20))

    assert found.sentences[0].startswith("B is slower by 10 ms a step: 8 of its steps took 3.2 s more in all")
    assert "in A 80 took 1.6 s more" in found.sentences[0]
    assert "a step takes 12 ms in B and 12 ms in A" in found.sentences[0]
