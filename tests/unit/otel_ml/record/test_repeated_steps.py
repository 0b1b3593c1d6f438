"""Steps that are gone through again: a name recorded at both times is said, what only comes late is not."""

from __future__ import annotations

import random
import threading

import pytest

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.log import log
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.step_loop import steps


def at_set_step(index, **values):
    set_step(index)
    log(values)


def at_log(index, **values):
    log(values, step=index)


def in_block(index, **values):
    with step(index):
        log(values)


ways = pytest.mark.parametrize("record", [at_set_step, at_log, in_block])
"""In which a program says which step it is in."""


@pytest.fixture
def said(recorded):
    sentences: list[str] = []
    reporter.connect(sentences.append)
    return sentences


@ways
@pytest.mark.parametrize("length", [9, 17, 50, 100])
@pytest.mark.parametrize("looks_at", [(), (0,), (0, 2, 3)], ids=["one look at the end", "one between", "many"])
def test_a_loop_that_counts_anew_in_each_epoch_is_said_once_with_what_it_records(
    recorded, said, record, length, looks_at
):
    for _ in range(4 if length < 17 else 2):
        for index in range(length):
            record(index, loss=1.0, lr=0.1)
            if index in looks_at:
                recorded.collect()
    recorded.collect(final=True)

    [sentence] = said
    assert f"Step 0 of axis 'step', and those after it, were begun again after step {length - 1}" in sentence
    assert "'loss', 'lr'" in sentence


@ways
def test_training_that_goes_back_to_a_checkpoint_in_one_process_is_said(recorded, said, record):
    for index in (*range(450), *range(400, 460)):
        record(index, loss=1.0)
        if index % 10 == 0:
            recorded.collect()
    recorded.collect(final=True)

    [sentence] = said
    assert "Step 400 of axis 'step', and those after it, were begun again after step 449" in sentence


def test_it_is_said_of_any_axis_and_of_a_loop_that_is_told_where_to_begin(recorded, said):
    for _ in range(2):
        for _ in steps(range(20), axis="validation", start=0):
            log({"loss": 1.0})
        recorded.collect()
    recorded.collect(final=True)

    [sentence] = said
    assert "of axis 'validation'" in sentence


@ways
@pytest.mark.parametrize("is_looked_at", [True, False])
def test_other_names_of_steps_that_are_over_are_said_of_nothing(recorded, said, record, is_looked_at):
    for index in range(60):
        record(index, loss=1.0)
    if is_looked_at:
        recorded.collect()
    for index in range(60):
        record(index, accuracy=1.0)
    recorded.collect(final=True)

    assert not said


@ways
def test_evaluations_that_come_later_while_training_goes_on_are_said_of_nothing(recorded, said, record):
    for index in range(200):
        record(index, loss=1.0)
        if index >= 40:
            record(index - 40, accuracy=1.0)
        if index % 7 == 0:
            recorded.collect()
    recorded.collect(final=True)

    assert not said


@ways
def test_several_records_of_a_step_as_of_micro_batches_are_said_of_nothing(recorded, said, record):
    for index in range(60):
        for _ in range(4):
            record(index, loss=1.0)
        if index % 7 == 0:
            recorded.collect()
    recorded.collect(final=True)

    assert not said


@ways
def test_samples_at_the_versions_of_a_policy_that_made_them_are_said_of_nothing(recorded, said, record):
    draw = random.Random(7)
    for newest in range(8, 200):
        for _ in range(20):
            record(newest - draw.randrange(8), reward=1.0)
        if newest % 7 == 0:
            recorded.collect()
    recorded.collect(final=True)

    assert not said


@ways
def test_batches_of_samples_in_the_order_of_their_versions_are_said_of_nothing(recorded, said, record):
    for newest in range(0, 200, 2):
        for version in range(max(0, newest - 12), newest + 1):
            record(version, reward=1.0)
        recorded.collect()
    recorded.collect(final=True)

    assert not said


@ways
def test_what_is_recorded_ahead_at_a_step_that_comes_later_is_said_of_nothing(recorded, said, record):
    for index in range(200):
        record(100, checkpoint=1.0)
        record(index, loss=1.0)
        if index % 7 == 0:
            recorded.collect()
    recorded.collect(final=True)

    assert not said


def test_two_threads_each_in_its_own_steps_are_said_of_nothing(recorded, said):
    meet = threading.Barrier(2, timeout=60)

    def go_through(behind):
        for index in range(100):
            meet.wait()
            if index >= behind:
                in_block(index - behind, loss=1.0)

    threads = [threading.Thread(target=go_through, args=[behind]) for behind in (0, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorded.collect(final=True)

    assert not said
