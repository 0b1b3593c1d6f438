from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from otel_ml._internal.error_reporting import RecordingError, reporter
from otel_ml._internal.events.event_calls import log_text
from otel_ml._internal.events.event_queue import EVENTS
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.series.buffer import stay_awake
from otel_ml._internal.steps.axes import STEPS, Steps
from otel_ml._internal.steps.current import current_step
from otel_ml._internal.steps.step import set_step, step
from otel_ml._internal.timers.step_loop import steps
from tests.unit.otel_ml.record.decoded import manifests, points, sums
from tests.waiting import eventually


def steps_of(batch, name="x"):
    return [(point.axis, point.step) for point in points(batch, name)]


def test_set_step_holds_for_every_thread(recorded):
    set_step(7)
    thread = threading.Thread(target=log, args=({"x": 1.0},))
    thread.start()
    thread.join()

    assert steps_of(recorded.collect()) == [("step", 7)]


@pytest.mark.timeout(30)
def test_a_block_may_be_entered_again_inside_of_itself(recorded):
    block = step(3)
    with block:
        with step(4), block:
            log({"x": 1.0})
            assert current_step("nowhere") is None
        with block:
            log({"x": 1.0})
        log({"x": 1.0})
    log({"x": 1.0})

    assert sums(recorded.collect(final=True))["x", 3] == 4.0
    assert current_step() is None
    assert STEPS.axis("step").steps[3].blocks == 0


def test_a_block_that_threads_share_is_one_for_each(recorded):
    block, is_entered, is_left = step(3), threading.Event(), threading.Event()
    seen = []

    def other():
        with block:
            is_entered.set()
            is_left.wait(20)
            seen.append(current_step())
        seen.append(current_step())

    thread = threading.Thread(target=other)
    thread.start()
    assert is_entered.wait(20)
    with block:
        pass
    seen.append(current_step())
    is_left.set()
    thread.join()

    assert seen == [None, 3, None]
    assert STEPS.axis("step").steps[3].blocks == 0


def test_a_block_overrides_the_process_step_and_ends_with_it(recorded):
    set_step(1)
    with step(5):
        log({"x": 1.0})
    log({"x": 2.0})

    assert sums(recorded.collect()) == {("x", 5): 1.0, ("x", 1): 2.0}


def test_a_plain_thread_does_not_inherit_a_block(recorded):
    set_step(1)
    with step(5):
        thread = threading.Thread(target=log, args=({"x": 1.0},))
        thread.start()
        thread.join()

    assert steps_of(recorded.collect()) == [("step", 1)]


def test_the_innermost_block_decides_the_axis_and_outer_ones_are_found_by_name(recorded):
    set_step(100, axis="samples")
    with step(10), step(3, axis="rollout"):
        log({"x": 1.0})
        log({"y": 1.0}, axis="step")
        log({"z": 1.0}, axis="samples")

    batch = recorded.collect()
    assert steps_of(batch, "x") == [("rollout", 3)]
    assert steps_of(batch, "y") == [("step", 10)]
    assert steps_of(batch, "z") == [("samples", 100)]


def test_axis_step_is_the_default_where_several_axes_are_set(recorded):
    set_step(10)
    set_step(3, axis="rollout")
    log({"x": 1.0})

    assert steps_of(recorded.collect()) == [("step", 10)]


def test_a_process_with_another_axis_only_records_there(recorded):
    set_step(3, axis="rollout")
    log({"x": 1.0})

    assert steps_of(recorded.collect()) == [("rollout", 3)]


def test_tasks_with_several_policy_versions_do_not_mix(recorded):
    async def rollout(version: int, number: int) -> None:
        with step(version, axis="policy_version"):
            for _ in range(3):
                log({"reward": float(number)}, reduce="sum")
                await asyncio.sleep(0)

    async def job() -> None:
        await asyncio.gather(*(rollout(i % 3, i) for i in range(64)))

    asyncio.run(job())

    expected = {("reward", v): 3.0 * sum(i for i in range(64) if i % 3 == v) for v in range(3)}
    assert sums(recorded.collect()) == expected


def test_log_with_a_step_does_not_move_a_step_that_was_set(recorded):
    set_step(4)
    log({"x": 1.0}, step=9)
    log({"x": 2.0})

    assert sums(recorded.collect()) == {("x", 9): 1.0, ("x", 4): 2.0}


def test_log_with_a_step_is_the_current_one_where_nothing_else_sets_it(recorded):
    log({"x": 1.0}, step=9)
    log({"x": 2.0})

    assert sums(recorded.collect()) == {("x", 9): 3.0}


def test_records_without_a_step_travel_without_step_and_axis(recorded):
    log({"x": 1.0})

    batch = recorded.collect(final=True)
    assert steps_of(batch) == [(None, None)]
    assert manifests(batch) == {}
    assert batch.points == 1
    assert batch.holds == ((None, None, 1),)


@pytest.mark.parametrize("bad", [-1, 1.0, True, "3", None, 2**63, np.float32(1)])
def test_a_bad_step_is_said_and_leaves_the_current_one(recorded, bad):
    said = []
    reporter.connect(said.append)
    set_step(1)
    set_step(bad)
    with step(bad):
        log({"x": 1.0})

    assert steps_of(recorded.collect()) == [("step", 1)]
    assert len(said) == 2
    assert repr(bad)[:20] in said[0]


@pytest.mark.parametrize("bad", [-1, 1.0, True, "3"])
def test_values_at_a_bad_step_are_counted(recorded, bad):
    log({"x": 1.0, "y": 2.0}, step=bad)

    assert points(recorded.collect()) == []
    assert recorder.dropped == {"bad_step": 2}


def test_a_bad_step_raises_in_strict_mode(recorded):
    recorded.configure(strict=True)
    with pytest.raises(RecordingError, match=r"got 1\.5"):
        log({"x": 1.0}, step=1.5)  # type: ignore[arg-type]


class OfJax:
    """A JAX array without dimensions, as flax and optax keep the step."""

    shape = ()

    def __init__(self, value: object, platform: str = "cpu", dtype: str = "int32") -> None:
        self._value, self._platform, self.dtype = value, platform, dtype

    def devices(self) -> set[SimpleNamespace]:
        return {SimpleNamespace(platform=self._platform)}

    def __index__(self) -> int:
        if self._platform != "cpu":
            raise AssertionError("reading it waits for the device")
        return self._value

    def __repr__(self) -> str:
        if self._platform != "cpu":
            raise AssertionError("reading it waits for the device")
        return f"Array({self._value}, dtype={self.dtype})"


class Index:
    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, np.array, torch.tensor, OfJax, Index])
def test_whatever_counts_is_a_step_wherever_one_is_taken(recorded, monkeypatch, kind):
    monkeypatch.setattr("otel_ml._internal.events.event_calls.is_on", lambda: True)  # without a run
    metric = get_meter().metric("x")
    set_step(kind(3))
    log({"x": 1.0})
    with step(kind(4)):
        log({"x": 1.0})
    log({"x": 1.0}, step=kind(5))
    record("x", 1.0, step=kind(6))
    metric.record(1.0, step=kind(7))
    log({"x": 1.0, **{f"m{i}": 1.0 for i in range(9)}}, step=kind(8))
    for _ in steps("ab", start=kind(9)):
        log({"x": 1.0})
    log_text("t", "words", step=kind(11))

    assert [index for _, index in steps_of(recorded.collect(final=True))] == list(range(3, 11))
    assert [event.attributes["ml.step"] for event in EVENTS.take()] == [11]
    assert recorder.dropped == {}


NO_STEPS = [
    lambda i: i + 0.5,
    lambda i: -1 - i,
    lambda i: f"{i}",
    lambda i: np.float32(i),
    lambda i: np.array([i, i]),
    lambda i: torch.tensor(float(i)),
    lambda i: torch.tensor(i, device="meta"),
    lambda i: OfJax(i, platform="gpu"),
    lambda i: OfJax(True, dtype="bool"),
    lambda i: np.bool_(1),
    lambda i: Index(2**70 + i),
    lambda i: 10**5000 + i,
]


@pytest.mark.parametrize("bad", NO_STEPS)
def test_a_loop_whose_steps_are_none_is_told_once_and_its_values_are_counted(recorded, bad):
    said = []
    reporter.connect(said.append)
    for i in range(5):
        log({"x": 1.0, "y": 2.0}, step=bad(i))

    assert len(said) == 1
    assert recorder.dropped == {"bad_step": 10}


def test_a_loop_whose_values_are_none_is_told_once(recorded):
    said = []
    reporter.connect(said.append)
    for i in range(5):
        log({"x": f"text {i}"})
        record("y", 1.0, weight=-1.0 - i)

    assert len(said) == 2
    assert recorder.dropped == {"bad_value": 5, "bad_weight": 5}


def test_a_step_set_while_recording_is_off_holds_once_it_is_on(recorded):
    recorder.enabled = False
    set_step(5)
    set_step(2, axis="rollout")
    recorder.enabled = True
    log({"x": 1.0})
    log({"y": 1.0}, axis="rollout")

    assert sums(recorded.collect()) == {("x", 5): 1.0, ("y", 2): 1.0}


def test_a_block_that_never_ends_does_not_keep_other_steps_in_memory(recorded):
    with step(0):
        for i in range(1, 3 * Steps.KEPT):
            set_step(i)
        log({"x": 1.0})

    assert len(STEPS.axes["step"].steps) <= Steps.KEPT + 2
    assert steps_of(recorded.collect()) == [("step", 0)]


def test_memory_of_old_steps_is_let_go(recorded):
    for i in range(2 * Steps.KEPT):
        set_step(i)
        if i % 1000 == 0:
            log({"x": 1.0})
            recorded.collect(after_s=100)
    recorded.collect(final=True)
    set_step(2 * Steps.KEPT)

    assert len(STEPS.axes["step"].steps) <= Steps.KEPT + 1


def test_a_forked_child_has_no_step_and_none_of_the_records(recorded):
    set_step(5)
    log({"parent": 1.0})
    read, write = os.pipe()
    with step(6):
        pid = os.fork()
        if pid == 0:
            recorder.forget()
            stay_awake()  # no run begins here: its background thread would take what this test collects
            log({"child": 1.0})
            batch = recorded.collect(final=True)
            text = repr([(point.name, point.step, point.seq) for point in points(batch)])
            os.write(write, text.encode())
            os._exit(0)
    os.waitpid(pid, 0)

    assert os.read(read, 1000).decode() == "[('child', None, 1)]"
    assert sums(recorded.collect()) == {("parent", 5): 1.0}


def test_the_last_steps_are_remembered_and_few_others(recorded):
    with step(3):
        for index in range(10, 10_010):
            set_step(index)

        known = list(STEPS.axes["step"].steps)
        assert set(range(10_010 - STEPS.KEPT, 10_010)) <= set(known)
        assert 3 in known  # a block of it is open
        assert len(known) < STEPS.KEPT + STEPS.SPARE


def test_steps_are_forgotten_while_another_thread_goes_on_to_new_ones() -> None:
    forgotten, is_over = Steps(), threading.Event()

    def go_on() -> None:
        for index in itertools.count():
            forgotten.at("step", index)
            if is_over.is_set():
                return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns in the middle of everything
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        for _ in range(100):
            eventually(lambda: len(forgotten.axis("step").steps) > 1_000)
            forgotten.forget()
    finally:
        is_over.set()
        thread.join(30)
        sys.setswitchinterval(interval)
