"""A signal handler may do what the main thread is doing: here at every line of it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import otel_ml
from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.one_time_event import OneTimeEvent
from otel_ml._internal.series.buffer import MOST, STRIDE
from otel_ml._internal.single_thread_executor import SingleThreadExecutor
from otel_ml._internal.steps.axes import Steps
from otel_ml._internal.timers.consumed import settle_consumed
from otel_ml._internal.timers.spans import STATE, _begin_alone
from otel_ml.compat.roll.durations import DurationTracker
from otel_ml.diagnostics.goodput import Goodput
from otel_ml.testing import Capture, capture
from tests.cuda_events import CudaEvents, cuda_events

__all__ = ["cuda_events"]


def interrupted_everywhere(call: Callable[[], Any], files: tuple[str, ...]) -> int:
    """Make the call in the middle of itself, at every line of `files`; return how often that was."""
    times = 0

    def trace(frame: FrameType, kind: str, _: Any) -> Any:
        nonlocal times
        if not frame.f_code.co_filename.endswith(files):
            return None
        if kind == "line":
            sys.settrace(None)
            times += 1
            call()
            sys.settrace(trace)
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return times


def interrupted_at(place: int, files: tuple[str, ...], call: Callable[[], Any], handler: Callable[[], Any]) -> bool:
    """Make the call, and call `handler` at the so manieth line of `files`; return whether there is such a line."""
    lines = itertools.count()

    def trace(frame: FrameType, kind: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(files):
            return None
        if kind == "line" and next(lines) == place:
            sys.settrace(None)
            handler()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return next(lines) > place


@pytest.mark.timeout(30)
def test_a_handler_that_saves_a_checkpoint_in_the_middle_of_a_step(otel_ml_capture: Capture) -> None:
    goodput = Goodput()

    def step() -> None:
        with goodput.work(1):
            pass
        goodput.saved(1)

    assert interrupted_everywhere(step, ("goodput.py",)) > 5


@pytest.mark.timeout(30)
def test_a_handler_that_is_timed_while_a_duration_is_taken() -> None:
    durations = DurationTracker()
    times = interrupted_everywhere(lambda: durations.observe(1.0), ("durations.py",))

    assert times > 1
    assert durations.log()["count"] == times + 1


@pytest.mark.timeout(30)
def test_a_handler_that_measures_on_the_device_while_that_is_measured(
    otel_ml_capture: Capture, cuda_events: CudaEvents
) -> None:
    def measure() -> None:
        with otel_ml.timed("kernel", device="cuda"):
            cuda_events.work(1.0)

    measure()  # what is looked up at first sight is not looked up in the middle of itself
    times = interrupted_everywhere(measure, ("device_timers.py",))
    cuda_events.catch_up()

    assert times > 10
    assert sum(point.count for point in otel_ml_capture.points if point.name == "time/kernel") == times + 2


@pytest.mark.timeout(30)
def test_a_handler_that_waits_for_the_thread_that_is_waited_for() -> None:
    """What waits by a lock of Python's, as a future of `concurrent.futures` does, never ends here."""
    background = SingleThreadExecutor()

    def waited(interrupted_at: int) -> bool:
        lines = itertools.count()

        def trace(frame: FrameType, kind: str, _: Any) -> Any:
            if kind == "line" and next(lines) == interrupted_at:
                sys.settrace(None)
                background.begin(lambda: None).outcome()
            return trace

        task = background.begin(lambda: OneTimeEvent().wait(0.02))  # under way while it is waited for
        sys.settrace(trace)
        try:
            task.outcome()
        finally:
            sys.settrace(None)
        return next(lines) <= interrupted_at

    assert next(line for line in itertools.count() if waited(line)) > 5
    background.close()


@pytest.mark.timeout(30)
def test_a_handler_that_goes_on_to_new_steps_while_the_oldest_are_forgotten(otel_ml_capture: Capture) -> None:
    numbers = itertools.count()

    def go_on() -> None:
        otel_ml.set_step(next(numbers))

    for _ in range(Steps.KEPT + Steps.SPARE - 1):
        go_on()

    assert interrupted_everywhere(go_on, ("steps/axes.py",)) > 10
    assert otel_ml_capture.notices == []


@pytest.mark.timeout(60)
def test_a_handler_that_makes_a_new_axis_while_a_step_is_left() -> None:
    def leave_a_step(axis: str) -> None:
        for _ in otel_ml.steps(range(1), axis=axis):
            pass

    def left(interrupted_at_line: int) -> bool:
        with capture() as run:
            otel_ml.set_step(0, axis="around")
            was_there = interrupted_at(
                interrupted_at_line, ("steps/axes.py",), lambda: leave_a_step("one"), lambda: leave_a_step("other")
            )
            assert run.notices == []
        return was_there

    assert next(line for line in itertools.count() if not left(line)) > 20


def test_a_handler_that_times_something_while_a_timer_begins(
    otel_ml_capture: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STATE, "begin", lambda span: _begin_alone(span))  # as where nothing is compiled

    def measure() -> None:
        with otel_ml.timed("block"):
            pass

    times = interrupted_everywhere(measure, ("timers/spans.py",))

    assert times > 5
    assert sum(point.count for point in otel_ml_capture.points if point.name == "time/block") == times + 1


@pytest.mark.timeout(60)
def test_a_handler_that_ends_the_run_that_is_being_ended() -> None:
    def ended(interrupted_at_line: int) -> bool:
        with capture() as run:
            otel_ml.log({"loss": 1.0}, step=0)
            files = ("lifecycle/runtime.py", "run_environment.py", "when_imported.py")
            was_there = interrupted_at(interrupted_at_line, files, otel_ml.shutdown, lambda: otel_ml.shutdown(10.0))
        assert [(point.step, point.value) for point in run.points] == [(0, 1.0)]
        return was_there

    assert next(line for line in itertools.count() if not ended(line)) > 20


@pytest.mark.timeout(30)
def test_a_handler_that_counts_a_loss_while_the_first_of_its_kind_is_counted(otel_ml_capture: Capture) -> None:
    # Of `Counter` itself: what is counted is read, and written back, in one line of ours.
    times = interrupted_everywhere(lambda: reporter.drop("bad_value", "A value is none."), ("collections/__init__.py",))

    assert reporter.dropped["bad_value"] == times + 1


def record_much() -> None:
    """Record more than any thread may without a fold."""
    metric = otel_ml.get_meter("handler").metric("much")
    for _ in range(MOST // STRIDE + 1000):
        metric.record(1.0)


@pytest.mark.timeout(120)
def test_a_handler_that_records_much_while_a_run_beside_another_one_ends() -> None:
    def ended(interrupted_at_line: int) -> bool:
        with capture():
            beside = RUNTIME.begin({"experiment": "beside"})
            return interrupted_at(interrupted_at_line, ("messages/recorder.py",), beside.finish, record_much)

    assert next(line for line in itertools.count() if not ended(line)) > 10


@pytest.mark.timeout(60)
def test_a_handler_that_ends_a_run_while_another_one_begins_beside_it() -> None:
    answers = []

    def begun(interrupted_at_line: int) -> bool:
        with capture():
            first = otel_ml.init()
            first.log({"loss": 1.0}, step=0)
            was_there = interrupted_at(
                interrupted_at_line,
                ("record/fold.py",),
                lambda: RUNTIME.begin({"experiment": "beside"}),
                lambda: answers.append(first.shutdown(20.0)),
            )
            RUNTIME.shutdown(20.0)
            return was_there

    assert next(line for line in itertools.count() if not begun(line)) > 2
    assert set(answers) == {True}


@pytest.mark.timeout(60)
def test_a_handler_that_ends_the_run_while_what_was_consumed_is_counted() -> None:
    answers: list[bool] = []

    class Ends(str):
        __slots__ = ()

        def __hash__(self) -> int:
            if threading.current_thread() is threading.main_thread() and not answers:
                answers.append(otel_ml.shutdown(20.0))
            return 1

    with capture():
        while not answers:  # the background thread may have counted before
            otel_ml.consumed([Ends("one"), Ends("another")])
            settle_consumed(wait=False)

    assert answers == [True]


def test_a_wait_that_a_handler_leaves_once_it_is_over_ends_no_other_one():
    event = OneTimeEvent()
    event.open()

    def press_ctrl_c(frame: FrameType, what: str, function: Any) -> None:
        """Raise where a handler would: behind the call that waits, before anything else."""
        if what == "c_return" and function.__name__ == "acquire":
            raise KeyboardInterrupt

    sys.setprofile(press_ctrl_c)
    try:
        with pytest.raises(KeyboardInterrupt):
            event.wait()
    finally:
        sys.setprofile(None)

    assert event.wait(0.0)
