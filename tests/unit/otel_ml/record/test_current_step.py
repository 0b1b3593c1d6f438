"""`current_step()` is the number of the step that a record without one goes to."""

from __future__ import annotations

import threading

import pytest

import otel_ml
from otel_ml._internal.messages.recorder import recorder
from otel_ml.testing import capture


def where_a_record_goes(axis: str | None = None) -> int | None:
    """Return the step of a record, from what was collected of it."""
    with capture() as run:
        otel_ml.set_step(4)
        otel_ml.set_step(7, axis="rollout")
        with otel_ml.step(9, axis="eval"):
            otel_ml.log({"here": 1.0}, axis=axis)
            assert otel_ml.current_step(axis) == run.points[0].step
        return run.points[0].step


@pytest.mark.parametrize(("axis", "expected"), [(None, 9), ("step", 4), ("rollout", 7), ("eval", 9)])
def test_it_is_the_step_that_log_of_the_same_axis_records_at(axis: str | None, expected: int) -> None:
    assert where_a_record_goes(axis) == expected


def test_outside_of_steps_and_on_an_axis_that_nobody_set_there_is_none() -> None:
    with capture():
        assert otel_ml.current_step() is None
        with otel_ml.step(3):
            assert otel_ml.current_step() == 3
            assert otel_ml.current_step("eval") is None
        assert otel_ml.current_step() is None


def test_a_loop_has_the_step_of_its_item_and_none_after_it() -> None:
    with capture():
        assert [otel_ml.current_step() for _ in otel_ml.steps("ab", start=5)] == [5, 6]
        assert otel_ml.current_step() is None


def test_a_block_is_of_its_context_and_set_step_of_the_process() -> None:
    found: list[int | None] = []
    with capture():
        otel_ml.set_step(2)
        with otel_ml.step(8):
            thread = threading.Thread(target=lambda: found.append(otel_ml.current_step()))
            thread.start()
            thread.join()
            assert (otel_ml.current_step(), found) == (8, [2])


def test_while_nothing_is_recorded_there_is_none(recorded) -> None:
    otel_ml.set_step(2)
    recorder.enabled = False
    assert otel_ml.current_step() is None
    assert otel_ml.current_step("step") is None


def test_an_axis_that_is_none_is_said_and_raises_nothing() -> None:
    with capture() as run:
        assert otel_ml.current_step(3) is None  # type: ignore[arg-type]
        assert ["current_step(): expected an axis such as 'rollout', got 3." in said for said in run.notices] == [True]


def test_a_run_knows_its_own() -> None:
    with capture():
        run = otel_ml.init()
        otel_ml.set_step(6)
        assert run.current_step() == 6
