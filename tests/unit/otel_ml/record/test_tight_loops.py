"""Who records faster than the background thread takes it waits for it: nothing is lost, and no wait is for ever."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from otel_ml._internal.events.event_calls import event
from otel_ml._internal.events.event_queue import EVENTS
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.one_time_event import OneTimeEvent
from otel_ml._internal.record.backpressure import BACKPRESSURE
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.record.log import log, record
from otel_ml._internal.record.meter import get_meter
from otel_ml._internal.record.relieve import relieve
from otel_ml._internal.series import buffer
from otel_ml._internal.steps.step import set_step
from otel_ml._internal.timers import spans
from otel_ml._internal.timers.timing import timed
from tests.waiting import eventually

A_FULL_BUFFER = buffer.LIMIT // buffer.STRIDE + 1


class TakenMeanwhile(OneTimeEvent):
    """Somebody who waits, and at whom another run's thread says, too, that it has taken something."""

    __slots__ = ()

    def open(self) -> None:
        BACKPRESSURE.took()
        super().open()


def test_threads_of_two_runs_let_those_go_on_who_wait(recorded):
    waiting = [TakenMeanwhile() for _ in range(3)]
    BACKPRESSURE._waiting.extend(waiting)

    BACKPRESSURE.took()

    assert all(one.wait(0) for one in waiting)


@dataclass
class Taken:
    """What a background thread took that looks only while somebody waits for it: as late as it can."""

    values: int = 0
    spans: int = 0
    events: int = 0
    is_over: bool = False
    waits: int = 0
    has_ended_well: bool = False

    def look(self) -> None:
        batch = recorder.collect(time.time_ns())
        self.values += batch.values
        self.spans = spans.STATE.collected
        self.events += len(list(EVENTS.take()))

    def run(self) -> None:
        BACKPRESSURE.begin()
        try:
            while not self.is_over:
                if BACKPRESSURE._waiting:
                    self.waits += 1
                    self.look()
                time.sleep(0.0001)  # between two looks
            self.look()
            self.has_ended_well = True
        finally:
            BACKPRESSURE.leave()


@contextmanager
def collecting() -> Iterator[Taken]:
    taken = Taken()
    thread = threading.Thread(target=taken.run, daemon=True)
    thread.start()
    eventually(lambda: BACKPRESSURE.threads)
    try:
        yield taken
    finally:
        taken.is_over = True
        thread.join()
        assert taken.has_ended_well


class OnDevice:
    """A JAX array that has been computed."""

    ndim = 0
    shape = ()

    def __array__(self) -> None:
        raise AssertionError("reading it would wait for the device")

    def is_ready(self) -> bool:
        return True

    def reshape(self, *_: int) -> OnDevice:
        return self

    def tolist(self) -> list[float]:
        return [1.0]


def a_step_for_each_call() -> int:
    for step in range(2_000):
        log({f"m{i}": 1.0 for i in range(20)}, step=step)
    return 40_000


def a_metric_at_ever_new_steps() -> int:
    metric = get_meter().metric("loss")
    for step in range(30_000):
        set_step(step)
        metric.record(1.0)
    return 30_000


def several_threads() -> int:
    def one(axis: str) -> None:
        for step in range(6_000):
            record("x", 1.0, step=step, axis=axis)

    threads = [threading.Thread(target=one, args=(f"axis {i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 24_000


def sequences() -> int:
    for step in range(20_000):
        record("all", [1.0, 2.0, 3.0], step=step)
    return 60_000


def values_of_a_device() -> int:
    for _ in range(150_000):
        record("x", OnDevice())
    return 150_000


LOOPS = [a_step_for_each_call, a_metric_at_ever_new_steps, several_threads, sequences, values_of_a_device]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_loop_of_any_kind_waits_and_loses_nothing(recorded, loop: Callable[[], int]):
    FOLDER.most_points = 1_000
    with collecting() as taken:
        values = loop()

    assert taken.waits > 0
    assert (taken.values, dict(recorder.dropped)) == (values, {})
    assert recorder.overhead_s > 0


def test_a_loop_of_timers_waits_and_loses_no_span(recorded):
    recorded.configure(spans_per_step=100)
    with collecting() as taken:
        for step in range(3 * spans.MAX_WAITING // 100):
            set_step(step)
            for _ in range(100):
                with timed("phase"):
                    pass

    assert taken.waits > 0
    assert (taken.spans, taken.values, dict(recorder.dropped)) == (150_000, 150_000, {})


def test_a_loop_of_events_waits_and_loses_none(recorded, monkeypatch):
    monkeypatch.setattr("otel_ml._internal.events.event_calls.is_on", lambda: True)  # without a run
    with collecting() as taken:
        for i in range(5_000):
            event("happened", {"i": i})

    assert taken.waits > 0
    assert (taken.events, dict(recorder.dropped)) == (5_000, {})


def test_a_loop_waits_for_a_background_thread_that_is_yet_to_start(recorded):
    FOLDER.most_points = 10
    BACKPRESSURE.expect()
    loop = threading.Thread(target=lambda: [record("x", 1.0, step=i) for i in range(A_FULL_BUFFER)])
    loop.start()
    eventually(lambda: BACKPRESSURE._waiting)
    with collecting() as taken:
        loop.join()

    assert (taken.values, dict(recorder.dropped)) == (A_FULL_BUFFER, {})


def test_a_tight_loop_waits_for_a_receiver_that_is_slow_and_an_ordinary_one_does_not(recorded):
    with collecting() as taken:
        BACKPRESSURE._held_up.add(-1)
        for _ in range(A_FULL_BUFFER - 1):
            record("x", 1.0)
        waits_of_an_ordinary_loop = taken.waits
        thread = threading.Thread(target=relieve)
        thread.start()
        eventually(lambda: taken.waits > 10)
        assert thread.is_alive()
        BACKPRESSURE._held_up.discard(-1)
        thread.join()

    assert waits_of_an_ordinary_loop == 0
    assert taken.values == A_FULL_BUFFER - 1


def test_what_nobody_collects_is_bounded_and_counted(recorded):
    FOLDER.most_points = 10
    for i in range(30):
        record("x", 1.0, step=i)
    relieve()
    batch = recorded.collect()

    assert batch.points == 10
    assert recorder.dropped == {"buffer_full": 20}
    assert {step for _, step, points in batch.holds if points} == set(range(20, 30))


def test_a_thread_that_collects_no_more_is_waited_for_once(recorded, monkeypatch):
    FOLDER.most_points = 10
    monkeypatch.setattr(BACKPRESSURE, "LOOK_S", 0.001)
    BACKPRESSURE.threads = {-1}  # somebody else, who is stuck
    waited = []
    wait = BACKPRESSURE.wait
    monkeypatch.setattr(type(BACKPRESSURE), "wait", lambda self: waited.append(wait()) or waited[-1])
    for i in range(3 * A_FULL_BUFFER):
        record("x", 1.0, step=i)
    stuck = BACKPRESSURE._is_stuck
    batch = recorded.collect()

    assert stuck
    assert waited == [False] * len(waited)
    assert len(waited) > 1
    assert batch.values == 3 * A_FULL_BUFFER
    assert recorder.dropped["buffer_full"] == batch.values - batch.points
    assert not BACKPRESSURE._is_stuck, "who collects again is waited for again"


def test_a_finalizer_records_on_the_thread_that_folds(recorded):
    class Freed(OnDevice):
        def __del__(self) -> None:
            for _ in range(buffer.MOST // buffer.STRIDE + 10):
                record("from a finalizer", 1.0)

    with collecting() as taken:
        record("x", Freed())  # the background thread reads it and lets it go, in the middle of a look
        relieve()
        BACKPRESSURE.wait()

    assert taken.values == buffer.MOST // buffer.STRIDE + 11


# A signal handler runs between two instructions of the main thread: here at the first line of a wait, at the second, …,
# while the thread that is waited for is not done yet.
HANDLERS = """
import sys
if sys.argv[1] == "python":
    sys.modules["otel_ml._native"] = None
import otel_ml
from otel_ml._internal.series import buffer
from otel_ml._internal.events.event_queue import EVENTS
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.record.relieve import relieve
from otel_ml._internal.one_time_event import OneTimeEvent
from otel_ml._internal.native import native
from otel_ml.testing import capture

assert (native is None) == (sys.argv[1] == "python")
FOLDER.MAX_POINTS = 100
FULL = buffer.LIMIT // buffer.STRIDE + 1
recorded, flushed, handled = 0, [], 0

def fill():
    global recorded
    for i in range(FULL):
        otel_ml.record("x", 1.0, reduce="sum", step=i % 200)
    recorded += FULL

def handler():
    global handled
    handled += 1
    otel_ml.set_step(handled)
    gate.open()
    fill()
    flushed.append(otel_ml.flush(20.0))

def interrupted_at(line):
    left = line

    def trace(frame, kind, _):
        nonlocal left
        if kind == "call":
            return trace if frame.f_code.co_filename.endswith((*FILES, "threading.py")) else None
        left -= kind == "line"
        if left < 0:
            sys.settrace(None)
            handler()
            return None
        return trace

    return trace

FILES = ("fold.py", "single_thread_executor.py", "one_time_event.py", "backpressure.py", "worker.py", "runtime.py")
with capture() as captured:
    for call in (relieve, lambda: otel_ml.flush(20.0)):
        line = handled = 0
        while line == handled:  # until there is no such line
            gate = OneTimeEvent()
            FOLDER.background.begin(lambda gate=gate: gate.wait(0.05))
            EVENTS.put("slow", lambda gate=gate: [gate.wait(0.05)][:0])
            sys.settrace(interrupted_at(line))
            call()
            sys.settrace(None)
            line += 1
        print(line > 10)
    print(all(flushed), recorded == sum(point.value for point in captured.points if point.name == "x"))
"""


@pytest.mark.parametrize("how", ["compiled", "python"])
def test_a_signal_handler_may_record_and_flush_at_any_moment_of_a_wait(how: str):
    done = subprocess.run(
        [sys.executable, "-c", HANDLERS, how], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout, done.returncode) == ("True\nTrue\nTrue True\n", 0), done.stderr


def test_a_counter_that_waits_for_a_slow_receiver_keeps_no_other_thread_from_a_new_name(recorded):
    counter = get_meter().create_up_down_counter("queue")
    looked_up = threading.Thread(target=log, args=({"new": 1.0},))
    adding = threading.Thread(target=lambda: [counter.add(1) for _ in range(A_FULL_BUFFER)])
    BACKPRESSURE.begin()  # as the background thread of a run, which says that its receiver is slow
    BACKPRESSURE.hold_up(is_held_up=True)
    try:
        adding.start()
        assert eventually(lambda: BACKPRESSURE._waiting)
        looked_up.start()
        looked_up.join(5)

        assert not looked_up.is_alive()
    finally:
        BACKPRESSURE.leave()
        adding.join(30)
        looked_up.join(30)
