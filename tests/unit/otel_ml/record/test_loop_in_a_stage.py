"""`steps()` in a stage: evaluation does not move the steps of training."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.log import log
from otel_ml._internal.steps.stage import Stage
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.step_loop import steps
from tests.unit.otel_ml.record.decoded import counts, points


def evaluated(batch):
    """Return how many batches of `evaluate()` are at each step."""
    return Counter(point.step for point in points(batch, "eval/acc"))


def evaluate(batches):
    with Stage("eval"):
        for _ in steps(batches):
            log({"acc": 1.0})


def test_a_loop_in_a_stage_after_training_counts_nothing_and_training_goes_on_where_it_was(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    for _ in range(2):
        for _ in steps("abc"):
            log({"loss": 1.0})
        evaluate("de")

    batch = recorded.collect()
    assert counts(batch, "loss") == dict.fromkeys(range(6), 1)
    assert evaluated(batch) == {2: 2, 5: 2}
    assert counts(batch, "time/step") == dict.fromkeys(range(6), 1)
    assert [sentence for sentence in said if "stage 'eval'" in sentence] == said[:1] == said


@pytest.mark.parametrize("train", [lambda: set_step(7), lambda: log({"loss": 1.0}, step=7)])
def test_a_loop_in_a_stage_leaves_the_step_that_the_program_said(recorded, train):
    train()
    evaluate("de")
    log({"lr": 1.0})

    batch = recorded.collect()
    assert evaluated(batch) == {7: 2}
    assert counts(batch, "lr") == {7: 1}


def test_an_async_loop_in_a_stage_counts_nothing_either(recorded):
    async def loader():
        yield 1
        yield 2

    async def validate():
        with Stage("eval"):
            async for _ in steps(loader()):
                log({"acc": 1.0})

    set_step(7)
    asyncio.run(validate())

    assert evaluated(recorded.collect()) == {7: 2}


def test_a_loop_in_a_stage_that_records_nothing_moves_no_step(recorded):
    with Stage(None):
        for _ in steps("ab"):
            log({"acc": 1.0})
    for _ in steps("cd"):
        log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {0: 1, 1: 1}


def test_a_program_that_only_evaluates_counts_the_steps_of_each_loop(recorded):
    evaluate("ab")
    evaluate("cd")
    with Stage("test"):
        for _ in steps("e", axis="batch"):
            log({"acc": 1.0}, axis="batch")

    batch = recorded.collect()
    assert counts(batch, "eval/acc") == dict.fromkeys(range(4), 1)
    assert [(point.axis, point.step) for point in points(batch, "acc")] == [("batch", 0)]


def test_that_a_loop_begins_after_those_of_a_stage_is_said_once(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    evaluate("ab")
    for _ in range(2):
        for _ in steps("cd"):
            log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {2: 1, 3: 1, 4: 1, 5: 1}
    [sentence] = said
    assert "begins at step 2" in sentence
    assert "steps(…, axis='eval')" in sentence


@pytest.mark.parametrize("is_evaluated", [False, True], ids=["block", "loop"])
def test_what_a_stage_did_at_step_0_alone_is_a_baseline(recorded, is_evaluated):
    said: list[str] = []
    reporter.connect(said.append)
    if is_evaluated:
        evaluate("a")
    else:
        with Stage("eval"), step(0):
            log({"acc": 1.0})
    for _ in steps("cd"):
        log({"loss": 1.0})

    batch = recorded.collect()
    assert counts(batch, "eval/acc") == {0: 1}
    assert counts(batch, "loss") == {0: 1, 1: 1}
    assert said == []


def train_in_a_block():
    with step(0):
        log({"loss": 1.0})


@pytest.mark.parametrize("enter", [lambda: set_step(0), train_in_a_block, lambda: [*steps("t")]])
def test_a_step_0_that_was_trained_in_after_a_baseline_in_a_stage_is_done(recorded, enter):
    with Stage("eval"), step(0):
        log({"acc": 1.0})
    enter()
    for _ in steps("cd"):
        pass

    assert sorted(counts(recorded.collect(), "time/step"))[-2:] == [1, 2]
