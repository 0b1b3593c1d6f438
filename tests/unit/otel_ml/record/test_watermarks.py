"""When a process says that it is done with a step, and how many points it has sent for it (docs/protocol.md §4.5)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.messages.watermark import is_step_complete
from otel_ml._internal.record.log import log
from otel_ml._internal.steps.axes import STEPS
from otel_ml._internal.steps.axis import Step
from otel_ml._internal.steps.step import set_step, step
from otel_ml.wire.boot_clock import seconds_since_boot
from tests.unit.otel_ml.record.decoded import every_point, manifests, positions


def test_a_manifest_follows_when_a_later_step_was_entered(recorded):
    set_step(0)
    log({"x": 1.0, "y": 2.0})
    assert manifests(recorded.collect(after_s=1)) == {}

    set_step(1)
    assert manifests(recorded.collect()) == {}, "a thread may still append to step 0 for some milliseconds"
    assert manifests(recorded.collect(after_s=1)) == {("step", 0): 2}
    assert manifests(recorded.collect(after_s=2)) == {}


def test_the_manifest_counts_all_flushes_of_a_step(recorded):
    set_step(0)
    log({"x": 1.0})
    recorded.collect()
    log({"x": 1.0, "y": 1.0})
    recorded.collect()
    set_step(1)

    assert manifests(recorded.collect(after_s=1)) == {("step", 0): 3}


def test_recording_at_an_old_step_sends_a_larger_manifest(recorded):
    set_step(0)
    log({"x": 1.0})
    set_step(1)
    assert manifests(recorded.collect(after_s=1)) == {("step", 0): 1}

    log({"late": 1.0}, step=0)

    assert manifests(recorded.collect(after_s=2)) == {("step", 0): 2}


def test_a_step_passed_over_needs_no_manifest(recorded):
    set_step(0)
    log({"x": 1.0})
    set_step(1)
    set_step(2)
    log({"x": 1.0})

    assert manifests(recorded.collect(final=True)) == {("step", 0): 1, ("step", 2): 1}


def test_an_open_block_holds_the_manifest_back(recorded):
    first = step(3, axis="policy_version")
    first.__enter__()
    log({"x": 1.0})
    with step(4, axis="policy_version"):
        log({"x": 1.0})
        assert manifests(recorded.collect(after_s=60)) == {}
        first.__exit__(None, None, None)
        assert manifests(recorded.collect(after_s=60)) == {("policy_version", 3): 1}


@contextmanager
def looked_at_each_line(of: Step) -> Iterator[list[bool]]:
    """Whether a background thread that looks at that very moment takes the step for complete."""
    now_ns = time.time_ns()
    seen: list[bool] = []

    def look(*_: object) -> Callable[..., object]:
        seen.append(is_step_complete(of, now_ns, 10_000_000_000))
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield seen
    finally:
        sys.settrace(before)


def leave_a_block() -> Step:
    block = step(7, axis="policy_version")
    block.__enter__()
    left = STEPS.axes["policy_version"].steps[7]
    with step(8, axis="policy_version"), looked_at_each_line(left) as seen:
        block.__exit__(None, None, None)
    assert not any(seen)
    return left


def go_on_to_another_step() -> Step:
    STEPS.set("step", 0)  # which the compiled `set_step()` does not call
    before = STEPS.axes["step"].steps[0]
    with looked_at_each_line(before) as seen:
        STEPS.set("step", 1)
    assert not any(seen)
    return before


def leave_an_earlier_step() -> Step:
    STEPS.set("step", 1)
    STEPS.set("step", 0)
    with looked_at_each_line(STEPS.axes["step"].steps[0]) as seen:
        STEPS.end("step")
    assert not any(seen)
    return STEPS.axes["step"].steps[0]


@pytest.mark.parametrize("end", [leave_a_block, go_on_to_another_step, leave_an_earlier_step])
def test_at_no_moment_of_its_end_does_a_step_look_as_if_it_had_ended_long_ago(recorded, end):
    """What was recorded in it last may not be folded yet: a watermark would be sent without it."""
    ended = end()

    assert is_step_complete(ended, ended.ended_ns + 20_000_000, 10_000_000_000)


def test_an_open_block_of_an_older_step_holds_back_the_manifest_of_a_newer_one(recorded):
    """A watermark says that the steps passed over have nothing; version 7 is in flight and has not recorded yet."""
    with step(7, axis="policy_version"):
        with step(8, axis="policy_version"):
            log({"x": 1.0})
        with step(9, axis="policy_version"):
            log({"x": 1.0})
        assert manifests(recorded.collect(after_s=60)) == {}
        log({"x": 1.0})

    assert manifests(recorded.collect(after_s=61)) == {("policy_version", 7): 1, ("policy_version", 8): 1}


def test_log_with_steps_in_the_order_5_3_4_is_done_with_each_at_once(recorded):
    log({"x": 1.0}, step=5)
    log({"x": 1.0}, step=3)
    log({"x": 1.0}, step=4)

    assert manifests(recorded.collect(after_s=1)) == {("step", 3): 1, ("step", 4): 1}
    log({"x": 1.0}, step=6)
    assert manifests(recorded.collect(after_s=2)) == {("step", 5): 1}


def test_the_newest_step_of_log_is_done_after_the_allowed_lateness(recorded):
    recorded.configure(allowed_lateness_ns=2 * 10**9)
    log({"x": 1.0}, step=5)

    assert manifests(recorded.collect(after_s=1)) == {}
    assert manifests(recorded.collect(after_s=3)) == {("step", 5): 1}


def test_points_the_spool_dropped_leave_the_manifest(recorded):
    set_step(0)
    log({"x": 1.0, "y": 1.0, "z": 1.0})
    batch = recorded.collect()
    assert [held for held in batch.holds if held[2]] == [("step", 0, 3)]
    recorded.recorder.points_dropped("step", 0, 3)
    log({"x": 1.0})
    set_step(1)

    assert manifests(recorded.collect(after_s=1)) == {("step", 0): 1}


def test_the_position_is_sent_at_each_flush_interval_where_a_step_is_set(recorded):
    log({"x": 1.0}, step=1, axis="eval")
    set_step(4)
    with step(7, axis="rollout"):
        assert positions(recorded.collect(after_s=10)) == {"step": 4, "rollout": 7}
        assert positions(recorded.collect(after_s=10.5)) == {}
    assert positions(recorded.collect(after_s=11)) == {"step": 4}


def test_a_position_says_when_it_was_taken_by_a_clock_that_nobody_sets(recorded):
    before = seconds_since_boot()
    set_step(4)

    [point] = [point for point in every_point(recorded.collect()) if point.name == "otel_ml.position"]

    assert before <= point.attributes["ml.boot.time"] <= seconds_since_boot()


def test_each_boundary_is_seen_by_the_sender(recorded):
    seen = [recorder.step_boundary()]
    set_step(1)
    seen.append(recorder.step_boundary())
    with step(2):
        seen.append(recorder.step_boundary())
    seen.append(recorder.step_boundary())

    assert seen == sorted(set(seen))


def test_a_clock_that_is_set_back_withholds_neither_manifest_nor_position(recorded):
    set_step(0)
    log({"x": 1.0})
    recorded.collect()
    set_step(1)

    batch = recorded.collect(after_s=-3600)

    assert manifests(batch) == {("step", 0): 1}
    assert positions(batch) == {"step": 1}
