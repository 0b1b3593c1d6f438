"""A run has every call of the module that is for a run, under the same name and with the same arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import otel_ml
from otel_ml.testing import Capture, capture

OF_NO_RUN = {
    "init",  # begins one
    "read",  # reads one that may be over
    "instrument_ray",  # is for all of a program
    "get_meter",  # whose metrics outlive runs, and record into the one that is current
    "operation",  # is made of calls for the one that is current
}

CALLS = sorted(name for name in otel_ml.__all__ if name[0].islower() and name not in OF_NO_RUN)


@pytest.fixture
def run() -> Iterator[Capture]:
    with capture() as found:
        yield found


def parameters(call: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(call).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


@pytest.mark.parametrize("name", CALLS)
def test_a_run_has_each_call_with_the_arguments_it_has_in_the_module(name: str, run: Capture) -> None:
    assert parameters(getattr(otel_ml.init(), name)) == parameters(getattr(otel_ml, name))


@pytest.mark.parametrize("name", [*CALLS, "summary", "finish"])
def test_each_method_says_what_it_does(name: str) -> None:
    described = inspect.getdoc(getattr(otel_ml.Run, name))

    assert described
    assert getattr(otel_ml.Run, name).__name__ == name


def test_every_call_of_a_run_is_in_it_and_in_no_other(run: Capture) -> None:
    ours = otel_ml.init()
    with ours.step(3):
        ours.log({"a": 1.0})
        ours.record("b", 2.0)
        with ours.timed("block"):
            pass
        assert ours.timed(abs)(-7) == 7
        assert ours.timed()(abs)(-8) == 8
        timer = ours.timer("hand")
        timer.start()
        timer.stop()
        assert ours.current_step() == 3
    assert ours.flush()

    names = {(point.name, point.step) for point in run.points}
    assert names == {("a", 3), ("b", 3), ("time/block", 3), ("time/abs", 3), ("time/hand", 3)}
