"""A run that has not come to its end when the next one begins: of neither anything is taken for the other's."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

import otel_ml
from otel_ml._internal.events.event_queue import EventQueue
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.lifecycle.isolation import isolated
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.record.fold import FOLDER
from otel_ml._internal.run_scope import NOBODY
from otel_ml._internal.series.buffer import RECORDS
from otel_ml.testing import Capture, Event, capture
from tests.waiting import eventually


def background_thread() -> threading.Thread:
    [thread] = [one for one in threading.enumerate() if one.name == "otel_ml"]
    return thread


@contextmanager
def run_that_ends_late(timeout: float) -> Iterator[Capture]:
    """Begin and leave a run whose background thread is held up until the block ends, and wait for that thread."""
    with capture() as run:
        thread = background_thread()
        otel_ml.log({"loss": 1.0}, step=0)
        lock = FOLDER.lock
        lock.acquire()
        otel_ml.log({"loss": 1.0, "accuracy": 0.5}, step=1)
        otel_ml.log_text("note", "of the first run", step=1)
        otel_ml.shutdown(timeout)
    yield run
    lock.release()
    thread.join(30)
    assert not thread.is_alive()


class HangingArray:
    """A value on a device that does not answer until it is told to."""

    shape, dtype, ndim, size = (), "float32", 0, 1

    def __init__(self) -> None:
        self.is_asked, self.answers = threading.Event(), threading.Event()

    def is_ready(self) -> bool:
        self.is_asked.set()
        return self.answers.wait(60)

    def __array__(self, *_: object, **__: object) -> object:
        import numpy

        return numpy.float32(7.0)


def end_of(run: Capture) -> Event:
    [end] = [event for event in run.events if event.kind == "ml.writer.end"]
    return end


@pytest.mark.parametrize("timeout", [0.0, -1.0])
def test_a_thread_that_ends_late_takes_nothing_of_the_run_after_its_own(timeout: float) -> None:
    with ExitStack() as first:
        first.enter_context(run_that_ends_late(timeout))
        with capture() as second:
            otel_ml.log({"loss": 2.0}, step=5)
            otel_ml.log_text("note", "of the second run", step=5)
            first.close()

            assert [(point.step, point.value) for point in second.points] == [(5, 2.0)]
            assert [event.body for event in second.events if event.name == "note"] == ["of the second run"]
            assert second.notices == []


def test_what_a_thread_that_ends_late_has_not_written_is_counted() -> None:
    with run_that_ends_late(0.0) as run:
        written = sum(point.count for point in run.points)
    end = end_of(run).attributes

    assert end["otel_ml.recorded"] == 3
    assert end["otel_ml.values"] == written
    assert end["otel_ml.dropped"] == {"held_up": 3 - written, "events_held_up": 1}
    assert end["ml.status"] == "finished"


def test_what_waits_for_a_device_that_hangs_is_counted_and_in_no_later_run() -> None:
    hanging = HangingArray()
    with capture() as first:
        thread = background_thread()
        otel_ml.log({"hung": hanging}, step=0)
        assert hanging.is_asked.wait(30)
        otel_ml.log({"loss": 1.0}, step=1)
        otel_ml.shutdown(0.0)
    with capture() as second:
        otel_ml.log({"loss": 2.0}, step=5)
        hanging.answers.set()
        thread.join(30)
        otel_ml.log({"loss": 4.0}, step=6)

        assert [(point.name, point.step, point.value) for point in second.points] == [
            ("loss", 5, 2.0),
            ("loss", 6, 4.0),
        ]
        assert second.notices == []
    assert first.points == []
    end = end_of(first).attributes
    assert (end["otel_ml.recorded"], end["otel_ml.values"]) == (1, 0)
    assert end["otel_ml.dropped"] == {"held_up": 1, "device_not_done": 1}
    numbers = end_of(second).attributes
    assert (numbers["otel_ml.recorded"], numbers["otel_ml.values"], numbers["otel_ml.dropped"]) == (2, 2, {})


def test_what_is_recorded_after_a_run_was_left_counts_as_recorded_after_its_end() -> None:
    with capture() as run:
        thread = background_thread()
        with FOLDER.lock:
            otel_ml.log({"loss": 1.0}, step=0)
            otel_ml.shutdown(0.0)
            otel_ml.log({"loss": 2.0, "accuracy": 0.5}, step=1)
            assert AFTER_SHUTDOWN.values == 2
        thread.join(30)

    assert end_of(run).attributes["otel_ml.recorded"] == 1


def test_a_run_that_is_given_no_time_has_recorded_what_it_was_given() -> None:
    for number in range(50):
        with capture() as run:
            otel_ml.log({"loss": float(number)}, step=number)
            otel_ml.shutdown(-1.0)
        with capture() as second:
            otel_ml.log({"loss": -1.0}, step=5)

            assert [point.value for point in second.points] == [-1.0]
        assert {point.value for point in run.points} <= {float(number)}


def test_who_waits_for_ever_for_a_flush_does_not_wait_for_a_thread_that_has_come_to_its_end() -> None:
    with capture():
        session = RUNTIME.current
        assert session is not None
        worker = session.worker
        assert worker is not None
        with FOLDER.lock:  # holds the background thread up
            ending = threading.Thread(target=otel_ml.shutdown, args=(20.0,))
            ending.start()
            eventually(lambda: worker._ending is not None or worker._requests.qsize() == 1)
            done: list[bool] = []
            flushing = threading.Thread(target=lambda: done.append(worker.request("flush", math.inf)), daemon=True)
            flushing.start()
            eventually(lambda: worker._requests.qsize() == (1 if worker._ending is not None else 2))
        ending.join()

        flushing.join(20)
        assert done == [False]


def test_what_is_forgotten_while_it_is_taken_is_taken_no_further() -> None:
    queue = EventQueue()
    for name in ("first", "second", "third"):
        queue.put("event()", lambda name=name: (LogRecord(name),))

    taken = []
    for record in queue.take():
        taken.append(record.event)
        queue.forget()

    assert taken == ["first"]


def test_threads_that_wait_for_an_end_hear_how_it_went() -> None:
    heard = []
    with capture():
        background = background_thread()
        with FOLDER.lock:
            otel_ml.log({"loss": 1.0}, step=0)
            threads = [threading.Thread(target=lambda: heard.append(otel_ml.shutdown(0.0))) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        background.join(30)

    assert heard == [False, False, False]


def test_after_a_second_shutdown_what_is_recorded_is_counted_as_after_the_first() -> None:
    with capture():
        otel_ml.log({"loss": 1.0}, step=0)
        assert otel_ml.shutdown(20.0)
        assert otel_ml.shutdown(20.0)
        for step in range(5):
            otel_ml.log({"loss": 2.0, "accuracy": 0.5}, step=step)

        assert AFTER_SHUTDOWN.values == 10
        assert len(RECORDS) == 0


class SlowLink:
    """A way to a receiver that finds none, and is let go of when it is told to."""

    is_starting = is_served = serves_here = False

    def __init__(self) -> None:
        self.is_closing, self.may_close = threading.Event(), threading.Event()

    def reach(self, now: float, *, failing_s: float) -> None:
        del now, failing_s

    def close(self) -> None:
        self.is_closing.set()
        self.may_close.wait(60)

    def forget(self) -> None:
        """Nothing is shared."""


class FailingLink(SlowLink):
    """A way to a receiver that cannot be looked for, as where a process that ends may start no other one."""

    def reach(self, now: float, *, failing_s: float) -> None:
        raise RuntimeError("can't fork at interpreter shutdown")


def test_an_end_that_can_look_for_no_receiver_says_what_it_keeps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    link = FailingLink()
    link.may_close.set()
    monkeypatch.setattr(RUNTIME, "make_link", lambda *_: link)
    with isolated():
        otel_ml.init("failing")
        otel_ml.log({"loss": 1.0}, step=0)
        assert not otel_ml.shutdown(5.0)

    said = capsys.readouterr().err
    assert said.count("No receiver can be looked for: RuntimeError: can't fork at interpreter shutdown.") == 1
    assert "1 point of rank 0 is not acknowledged" in said


def test_a_thread_that_has_said_what_it_kept_and_lets_go_is_not_called_held_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    link = SlowLink()
    monkeypatch.setattr(RUNTIME, "make_link", lambda *_: link)
    with isolated():
        otel_ml.init("slow")
        thread = background_thread()
        otel_ml.log({"loss": 1.0}, step=0)
        assert not otel_ml.shutdown(5.0)
        assert link.is_closing.is_set()
        link.may_close.set()
        thread.join(30)

    said = capsys.readouterr().err
    assert "1 point of rank 0 is not acknowledged" in said
    assert "held up" not in said


def test_what_another_run_has_folded_since_the_last_look_of_a_run_that_ends_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = SlowLink()
    monkeypatch.setattr(RUNTIME, "make_link", lambda *_: link)
    with isolated():
        first, second = otel_ml.init("exp", name="first"), otel_ml.init("exp", name="second")
        first.log({"loss": 1.0}, step=0)
        ending = threading.Thread(target=first.shutdown, args=(5.0,))
        ending.start()
        assert link.is_closing.wait(30)
        first.log({"loss": 1.0, "accuracy": 0.5}, step=0)
        with FOLDER.lock:  # as the background thread of the other run does at each look
            FOLDER.fold()
        before, held = NOBODY.dropped["no_run"], FOLDER.points
        link.may_close.set()
        ending.join(30)
        refused, given_back = NOBODY.dropped["no_run"] - before, held - FOLDER.points
        second.shutdown(0.0)

    assert (refused, given_back) == (2, 2)


def test_what_was_consumed_since_the_last_look_of_a_run_that_ends_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    link = SlowLink()
    monkeypatch.setattr(RUNTIME, "make_link", lambda *_: link)
    with isolated():
        run = otel_ml.init("exp")
        ending = threading.Thread(target=run.shutdown, args=(5.0,))
        ending.start()
        assert link.is_closing.wait(30)
        otel_ml.consumed(otel_ml.context())
        otel_ml.log({"loss": 1.0}, step=0)
        link.may_close.set()
        ending.join(30)

        assert AFTER_SHUTDOWN.values == 2
