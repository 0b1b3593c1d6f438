"""Work that is left to the background thread: at the step it was recorded at, once, and never into training."""

from __future__ import annotations

import threading

import pytest

from otel_ml._internal.axes import current_step
from otel_ml._internal.buffer import LIMIT, STRIDE
from otel_ml._internal.fold import FOLDER
from otel_ml._internal.guard import guard
from otel_ml._internal.later import later
from otel_ml._internal.log import log, record
from otel_ml._internal.recorder import recorder
from otel_ml._internal.step import set_step, step
from otel_ml.diagnostics import copies
from otel_ml.diagnostics.measure import Measure, Measures
from tests.unit.otel_ml.record.decoded import manifests, points, sums

X = Measure("x", "1", ("sum",), "One.")
MANY = Measures(X, Measure("y", "1", ("sum",), "Another."))


def test_what_is_left_for_later_belongs_to_the_step_it_was_left_at(recorded):
    for index in range(3):
        set_step(index)
        later(X.record, float(index))
        later(X.record, index)
        MANY.record_later({"x": 100.0, "y": index})
        with step(7, axis="epoch"):
            later(X.record, 1000.0)
    later(X.record, 0.5, step=1)
    set_step(3)

    assert sums(recorded.collect()) == {
        ("x", 0): 100.0, ("x", 1): 102.5, ("x", 2): 104.0, ("x", 7): 3000.0,
        ("y", 0): 0.0, ("y", 1): 1.0, ("y", 2): 2.0,
    }  # fmt: skip
    assert current_step().index == 3
    assert recorder.recorded == 16


def test_a_manifest_waits_for_what_is_left_for_later(recorded):
    set_step(0)
    log({"a": 1.0})
    later(X.record, 2.0)
    set_step(1)
    with FOLDER.lock:
        FOLDER.fold()  # as a caller's tight loop may have it
    assert manifests(recorded.collect(after_s=5)) == {("step", 0): 2}


def test_the_last_collection_has_what_was_left_for_later(recorded):
    set_step(0)
    later(X.record, 2.0)
    batch = recorded.collect(final=True)

    assert sums(batch) == {("x", 0): 2.0}
    assert manifests(batch) == {("step", 0): 1}


def test_it_is_called_by_who_collects_and_not_by_who_records(recorded):
    threads = []
    caller = threading.Thread(target=later, args=(lambda: threads.append(threading.get_ident()),))
    caller.start()
    caller.join()
    assert threads == []

    recorded.collect()
    assert threads == [threading.get_ident()]
    recorded.collect()
    assert len(threads) == 1


def test_it_may_record_more_than_the_buffer_holds(recorded):
    metric = Measure("many", "1", ("sum",), "Many.")
    often = 9 * LIMIT // STRIDE

    def many() -> None:
        for _ in range(often):
            metric.record(1.0)

    later(many)
    assert sums(recorded.collect()) == {("many", None): often}


def test_what_fails_later_is_said_and_counted_and_the_rest_is_recorded(recorded):
    said = []
    guard.connect(said.append)

    def broken(divisor: int) -> None:
        1 / divisor

    later(broken, 0)
    later(X.record, 1.0)

    assert sums(recorded.collect()) == {("x", None): 1.0}
    assert recorder.dropped == {"internal_error": 1}
    (sentence,) = said
    assert "broken() failed with ZeroDivisionError" in sentence


def test_under_strict_it_is_called_at_once_and_raises(recorded):
    recorded.configure(strict=True)
    set_step(4)
    later(X.record, 1.0, step=2)
    with pytest.raises(ZeroDivisionError):
        later(lambda: 1 / 0)

    assert sums(recorded.collect()) == {("x", 2): 1.0}


def test_a_step_that_is_none_is_said_and_counted_as_with_record(recorded):
    assert later(X.record, 1.0, step=-1) is None
    record("z", 1.0, step=-1)

    assert points(recorded.collect()) == []
    assert recorder.dropped == {"bad_step": 2}


def test_while_recording_is_off_nothing_is_called(recorded):
    called = []
    recorder.enabled = False
    later(called.append, 1)
    recorder.enabled = True
    recorded.collect()

    assert called == []


def test_calls_that_nobody_collects_are_bounded_and_counted(recorded, monkeypatch):
    monkeypatch.setattr(FOLDER, "MAX_CALLS", 5)
    for value in range(8):
        later(X.record, float(value))

    assert sums(recorded.collect()) == {("x", None): 0.0 + 1 + 2 + 3 + 4}
    assert recorder.dropped == {"buffer_full": 3}


def test_no_more_than_so_many_copies_wait_however_few_are_looked_at(recorded):
    seen: list[int] = []
    made = 0
    while copies.has_room():
        copies.look_later(seen.append, made)
        made += 1
    assert made == copies._COPIES

    recorded.collect()
    assert seen == list(range(made))
    assert copies.has_room()
