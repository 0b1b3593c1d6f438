"""What is recorded while a program evaluates stays apart from what is recorded while it trains."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.events.event_calls import log_text
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.run_scope import NOW
from otel_ml._internal.series.definition import define_metric
from otel_ml._internal.steps.stage import Stage
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.timing import timed
from otel_ml.integrations.stages import outside, stage
from tests.unit.otel_ml.record.decoded import manifests, points, sums


def test_what_is_recorded_in_a_stage_is_of_the_stage_at_the_same_step(recorded):
    set_step(3)
    log({"loss": 1.0})
    with stage("eval"):
        log({"loss": 50.0})
        record("reward", 7.0)
        get_meter().metric("m").record(2.0)
    log({"loss": 3.0})

    assert sums(recorded.collect()) == {
        ("loss", 3): 4.0,
        ("eval/loss", 3): 50.0,
        ("eval/reward", 3): 7.0,
        ("eval/m", 3): 2.0,
    }


def test_rows_of_many_names_follow_the_stage(recorded):
    names = [f"n{number}" for number in range(8)]
    set_step(1)
    for _ in range(3):  # the third time it is a row
        log(dict.fromkeys(names, 1.0))
    with stage("eval"):
        log(dict.fromkeys(names, 5.0))
        log(dict.fromkeys(names, 7.0), step=1)

    found = sums(recorded.collect())

    assert {found[name, 1] for name in names} == {3.0}
    assert {found[f"eval/{name}", 1] for name in names} == {12.0}


def test_a_given_step_is_of_the_stage_and_a_given_axis_or_prefix_says_more(recorded):
    set_step(1)
    with stage("eval"):
        log({"a": 1.0}, step=1)
        log({"b": 1.0}, step=4, axis="rollout")
        log({"c": 1.0}, prefix="mine")

    assert sums(recorded.collect()) == {("eval/a", 1): 1.0, ("b", 4): 1.0, ("mine/c", 1): 1.0}


@pytest.mark.parametrize("name", ["val/loss", "val_loss", "eval/loss", "test_accuracy", "validation/loss"])
def test_a_name_that_says_its_stage_stays(recorded, name):
    set_step(1)
    with stage("eval"):
        log({name: 1.0, "value": 2.0})

    assert sums(recorded.collect()) == {(name, 1): 1.0, ("eval/value", 1): 2.0}


def test_a_name_that_is_the_stages_already_is_beside_the_one_that_becomes_it(recorded):
    set_step(1)
    with stage("eval"):
        log({"loss": 1.0, "eval/loss": 5.0})

    batch = recorded.collect()

    assert sorted(point.raw.sum for point in points(batch, "eval/loss")) == [1.0, 5.0]
    assert len({point.seq for point in points(batch, "eval/loss")}) == 2  # a series is in a scope once


def test_a_stage_keeps_the_reduction_and_the_weights_of_a_metric(recorded):
    define_metric("tokens*", reduce="sum")
    set_step(1)
    with stage("eval"):
        log({"tokens": 5.0})
        log({"tokens": 6.0})
        log({"ce": 2.0}, weight=3.0)
        log({"ce": 4.0}, weight=1.0)
        log({"best": 4.0}, reduce="last")
        log({"spread": [1.0, 3.0]}, reduce=("std", "p50"))
        log({"speedup": 4.0}, reduce="geomean")
        log({"speedup": 9.0}, reduce="geomean")

    found = {point.name: point for point in points(recorded.collect())}

    assert (found["eval/tokens"].reduction, found["eval/tokens"].raw.sum) == ("sum", 11.0)
    assert (found["eval/ce"].attributes["ml.wsum"], found["eval/ce"].attributes["ml.wxsum"]) == (4.0, 10.0)
    assert (found["eval/best"].reduction, found["eval/best"].value) == ("last", 4.0)
    assert (found["eval/spread"].reduction, found["eval/spread"].raw.count) == ("std,p50", 2)
    logarithms = found["eval/speedup"].attributes["ml.logsum"]
    assert math.exp(logarithms / 2) == pytest.approx(6.0)


def test_timers_follow_the_stage(recorded):
    set_step(1)
    with timed("forward"), stage("eval"), timed("forward"):
        pass

    assert sorted((point.name, point.raw.count) for point in points(recorded.collect())) == [
        ("eval/time/forward", 1),
        ("time/forward", 1),
    ]


def test_texts_follow_the_stage(otel_ml_capture):
    set_step(1)
    with stage("eval"):
        log_text("completions", "x")
    with Stage(None):
        log_text("completions", "y")

    [text] = [event for event in otel_ml_capture.events if event.kind == "ml.text"]
    assert (text.name, text.step, text.body) == ("eval/completions", 1, "x")


def test_the_innermost_stage_counts_and_outside_there_is_none(recorded):
    set_step(1)
    with stage("eval"), stage("test"):
        log({"a": 1.0})
        with outside():
            log({"b": 1.0})
            set_step(2)
            log({"c": 1.0})
        log({"d": 1.0})

    assert sums(recorded.collect()) == {("test/a", 1): 1.0, ("b", 1): 1.0, ("c", 2): 1.0, ("test/d", 2): 1.0}


def test_blocks_and_steps_that_are_set_in_a_stage_count_in_it(recorded):
    set_step(1)
    with stage("eval"):
        with step(5):
            log({"a": 1.0})
        set_step(2)
        log({"a": 2.0})

    assert sums(recorded.collect()) == {("eval/a", 5): 1.0, ("eval/a", 2): 2.0}


def test_tasks_inherit_a_stage_and_plain_threads_do_not(recorded):
    async def task():
        log({"task": 1.0})

    set_step(1)
    with stage("eval"):
        asyncio.run(task())
        thread = threading.Thread(target=log, args=({"thread": 1.0},))
        thread.start()
        thread.join()

    assert set(sums(recorded.collect())) == {("eval/task", 1), ("thread", 1)}


def test_what_a_stage_sent_counts_in_the_manifest_of_its_step(recorded):
    set_step(1)
    log({"a": 1.0})
    with stage("eval"):
        log({"a": 1.0, "b": 2.0})
    set_step(2)

    assert manifests(recorded.collect(after_s=1.0)) == {("step", 1): 3}


def test_a_check_that_is_not_recorded_leaves_nothing_and_is_not_counted(recorded):
    set_step(1)
    before = recorder.recorded
    with Stage(None):
        log({"a": 1.0})
        log({"b": 1.0}, axis="rollout", step=4)
        with timed("forward"):
            pass

    assert points(recorded.collect(final=True)) == []
    assert recorder.recorded == before


def test_a_stage_without_a_current_step_has_the_one_it_was_given(recorded):
    with Stage("eval", 40):
        log({"a": 1.0})

    assert sums(recorded.collect()) == {("eval/a", 40): 1.0}


def test_after_the_last_stage_the_current_step_is_as_fast_to_find_as_before(recorded):
    set_step(1)
    with stage("eval"):
        set_step(2)
        assert NOW.step is None

    assert NOW.step is not None
    assert NOW.step.index == 2


def test_a_stage_that_has_no_name_is_said_and_changes_nothing(recorded):
    said: list[str] = []
    reporter.connect(said.append)
    set_step(1)
    with stage(7):  # type: ignore[arg-type]
        log({"a": 1.0})

    assert sums(recorded.collect()) == {("a", 1): 1.0}
    assert said[0].startswith("stage(): expected a name such as 'eval', got 7.")
