"""Which step `steps()` begins at: what the loader counts, where the program was, what a baseline leaves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tqdm import tqdm

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.record.log import log
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.step_loop import steps
from tests.unit.otel_ml.record.decoded import counts, manifests
from tests.unit.otel_ml.record.test_loader_records import reading


@pytest.mark.parametrize(
    "counting",
    [
        range(60, 63),
        [60, 61, 62],
        (60, 61, 62),
        np.arange(60, 63),
        tqdm(range(60, 63), disable=True),
        tqdm(enumerate("abc", 60), disable=True),
    ],
    ids=["range", "list", "tuple", "numpy", "tqdm of range", "tqdm of enumerate"],
)
def test_what_counts_from_further_on_says_itself_which_step_it_is(recorded, counting):
    for _ in steps(counting):
        log({"x": 1.0})

    assert counts(recorded.collect(), "x") == {60: 1, 61: 1, 62: 1}


def test_what_is_numbered_or_counted_without_an_end_says_which_step_it_is(recorded):
    for _ in steps(enumerate("ab", 60)):
        log({"x": 1.0})
    for number in steps(itertools.count(70)):
        log({"x": 1.0})
        if number == 71:
            break

    assert counts(recorded.collect(), "x") == {60: 1, 61: 1, 70: 1, 71: 1}


def test_a_second_epoch_that_counts_from_one_again_follows_the_first(recorded):
    for _ in range(2):
        for _ in steps(range(1, 4)):
            log({"x": 1.0})

    assert counts(recorded.collect(), "x") == dict.fromkeys(range(1, 7), 1)


def test_start_says_more_than_what_is_counted(recorded):
    for _ in steps(range(60, 62), start=7):
        log({"x": 1.0})

    assert counts(recorded.collect(), "x") == {7: 1, 8: 1}


@pytest.mark.parametrize("data", [[5, 3, 9], range(60, 90, 10), [60, 61.0], [True, False], "ab", [], range(0)])
def test_whole_numbers_that_do_not_count_are_not_the_step(recorded, data):
    for _ in steps(data):
        log({"x": 1.0})

    assert list(counts(recorded.collect(), "x")) == list(range(len(data)))


@pytest.mark.parametrize("kind", [lambda: (n for n in range(60, 63)), lambda: zip(range(60, 63), "abc", strict=True)])
def test_numbers_that_look_like_steps_and_are_not_taken_are_said(recorded, kind):
    said: list[str] = []
    reporter.connect(said.append)
    for _ in steps(kind()):
        log({"x": 1.0})

    assert list(counts(recorded.collect(), "x")) == [0, 1, 2]
    [sentence] = said
    assert "yields 60, 61, …, and its steps are 0, 1, … If those numbers are the steps, pass start=60." in sentence


def test_a_loader_that_yields_whole_numbers_is_not_accused(recorded):
    said: list[str] = []
    reporter.connect(said.append)

    class Loader:
        def __iter__(self):
            return iter([17, 4, 255])

    for _ in steps(Loader()):
        log({"x": 1.0})

    assert list(counts(recorded.collect(), "x")) == [0, 1, 2]
    assert said == []


def test_a_baseline_at_step_0_leaves_the_loop_where_it_begins_on_ranks_without_one(recorded):
    log({"val/loss": 9.0}, step=0)
    for _ in range(2):
        for _ in steps("ab"):
            log({"loss": 1.0})

    batch = recorded.collect()
    assert counts(batch, "val/loss") == {0: 1}
    assert counts(batch, "loss") == {0: 1, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("place", [lambda: set_step(1000), lambda: log({"val/loss": 9.0}, step=1000)])
def test_a_loop_follows_the_step_from_which_a_job_goes_on(recorded, place):
    place()
    for _ in steps("ab"):
        log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {1001: 1, 1002: 1}


@pytest.mark.parametrize("place", [lambda: set_step(60), lambda: log({"val/loss": 9.0}, step=60)])
def test_a_loop_that_says_the_step_the_program_is_at_begins_there(recorded, place):
    place()
    for _ in steps(range(60, 62)):
        log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {60: 1, 61: 1}


def test_a_loop_of_one_step_that_is_done_once_more_is_the_next_step(recorded):
    for _ in range(2):
        for _ in steps(range(60, 61)):
            log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {60: 1, 61: 1}


def test_that_what_a_generator_counts_is_one_less_than_its_steps_is_said(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    log({"val/loss": 9.0}, step=60)
    for _ in steps(number for number in range(60, 63)):
        pass

    assert [line for line in said if "pass start=60" in line]


def test_a_loop_follows_step_0_where_the_program_was_in_it(recorded):
    set_step(0)
    for _ in steps("ab"):
        log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {1: 1, 2: 1}


@pytest.mark.parametrize("is_collected", [False, True])
def test_that_a_baseline_has_a_name_of_the_first_step_is_said_once(recorded, is_collected):
    said: list[str] = []
    reporter.connect(said.append)
    log({"loss": 9.0, "val/acc": 0.1}, step=0)
    log({"val/acc": 0.2}, step=0)
    if is_collected:
        recorded.collect()
    for _ in steps("abc"):
        log({"loss": 1.0})

    batch = recorded.collect(final=True)
    assert manifests(batch)["step", 0] == 6
    assert len(said) == 1
    assert "'loss'" in said[0]
    assert "'val/acc'" not in said[0]


def test_a_baseline_with_names_of_its_own_is_not_accused(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    log({"val/acc": 0.1}, step=0)
    for _ in steps(reading(iter("a"))):
        log({"loss": 1.0})
    recorded.collect(final=True)

    assert said == []


def test_several_records_of_a_first_step_without_a_baseline_are_not_accused(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    log({"loss": 1.0}, step=0)
    recorded.collect()
    set_step(0)
    log({"loss": 1.0})
    recorded.collect(final=True)

    assert said == []


@pytest.mark.parametrize("block", [lambda: step(0), lambda: step(np.int64(0))])
def test_that_a_loop_follows_a_block_at_step_0_is_said_once(recorded, block):
    said: list[str] = []
    reporter.connect(said.append)
    with block():
        log({"val/loss": 9.0})
    for _ in range(2):
        for _ in steps("ab"):
            log({"loss": 1.0})

    assert counts(recorded.collect(), "loss") == {1: 1, 2: 1, 3: 1, 4: 1}
    [sentence] = said
    assert "begins at step 1" in sentence
    assert "start=0" in sentence


@pytest.mark.parametrize("loop", [lambda: steps("ab", start=0), lambda: steps(range(1, 3))])
def test_a_loop_that_says_where_it_begins_after_a_block_is_not_accused(recorded, loop):
    said: list[str] = []
    reporter.connect(said.append)
    with step(0):
        log({"val/loss": 9.0})
    for _ in loop():
        pass

    assert said == []
