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
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.record.fold import FOLDER
from otel_ml.testing import capture
from tests.waiting import eventually


@contextmanager
def run_that_ends_late(timeout: float) -> Iterator[None]:
    """Begin and leave a run whose background thread is held up until the block ends, and wait for that thread."""
    with capture():
        [thread] = [one for one in threading.enumerate() if one.name == "otel_ml"]
        otel_ml.log({"loss": 1.0}, step=0)
        lock = FOLDER.lock
        lock.acquire()
        otel_ml.shutdown(timeout)
    yield
    lock.release()
    thread.join(30)
    assert not thread.is_alive()


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
