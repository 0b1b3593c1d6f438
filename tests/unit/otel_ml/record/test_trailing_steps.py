"""Timers of a loop whose step only a `log(step=)` at its end says: they count in the step before, which is said."""

from __future__ import annotations

import pytest

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.log import log
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.step_loop import steps
from otel_ml._internal.timers.timing import timed


@pytest.fixture
def said(recorded):
    sentences: list[str] = []
    reporter.connect(sentences.append)
    return sentences


def timers() -> None:
    with timed("forward"):
        pass
    with timed("backward"):
        pass


@pytest.mark.parametrize("every", [1, 4])
def test_that_timers_count_in_the_step_before_is_said_once_with_what_to_do(recorded, said, every):
    for i in range(8):
        timers()
        log({"loss": 1.0}, step=i)
        if i % every == every - 1:
            recorded.collect()

    [sentence] = said
    assert "backward, forward" in sentence
    assert "set_step(i)" in sentence


def by_set_step(i: int) -> None:
    set_step(i)
    timers()
    log({"loss": 1.0}, step=i)


def in_a_block(i: int) -> None:
    with step(i):
        timers()
    log({"loss": 1.0}, step=i)


def by_the_first_log(i: int) -> None:
    log({"lr": 1.0}, step=i)
    timers()
    log({"loss": 1.0}, step=i)


@pytest.mark.parametrize("once", [by_set_step, in_a_block, by_the_first_log])
def test_loops_whose_timers_are_in_their_own_step_are_not_accused(recorded, said, once):
    with timed("load"):
        pass
    with timed("backward"):  # a first try, before the loop
        pass
    for i in range(6):
        once(i)
        recorded.collect()

    assert said == []


def test_a_loop_with_steps_is_not_accused(recorded, said):
    timers()
    for i in steps(range(6)):
        timers()
        log({"loss": 1.0}, step=i)
        recorded.collect()

    assert said == []


def test_a_run_that_comes_later_is_told_too(recorded, said):
    for _ in range(2):
        for i in range(4):
            timers()
            log({"loss": 1.0}, step=i)
            recorded.collect()
        recorded.recorder.forget()
        reporter.connect(said.append)

    assert len(said) == 2
