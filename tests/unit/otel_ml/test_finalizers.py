"""A finalizer runs on whatever thread the garbage collector has come to: here on one of ours, which others wait for."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.steps.axes import STEPS
from otel_ml._internal.steps.axis import Step
from otel_ml.testing import capture
from tests.waiting import eventually


class Text:
    """A text that is made in the background, where `meanwhile` is called by a finalizer."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.is_said = threading.Event()
        self._meanwhile = meanwhile

    def __str__(self) -> str:
        _Cycle(self._meanwhile)
        gc.collect()
        self.is_said.set()
        return "said"


class _Cycle:
    """Is nobody's at once, and finalized by the garbage collector alone."""

    def __init__(self, when_gone: Callable[[], object]) -> None:
        self._when_gone = when_gone
        self._itself = self

    def __del__(self) -> None:
        assert threading.current_thread().name == "otel_ml"
        self._when_gone()


def test_a_finalizer_that_flushes_waits_for_nobody() -> None:
    answers = []
    with capture() as run:
        text = Text(lambda: answers.append(otel_ml.flush(60.0)))
        otel_ml.log_text("note", text)  # type: ignore[arg-type] # anything that has a text
        assert text.is_said.wait(20)

        assert answers == [False]
        assert [event.body for event in run.events if event.name == "note"] == ["said"]


def test_a_run_that_a_finalizer_ends_is_whole() -> None:
    answers = []
    with capture() as run:
        otel_ml.log({"loss": 1.0}, step=0)
        text = Text(lambda: answers.append(otel_ml.shutdown(60.0)))
        otel_ml.log_text("note", text)  # type: ignore[arg-type] # the same
        assert text.is_said.wait(20)
        eventually(lambda: not RUNTIME.is_active)
        assert otel_ml.shutdown(20.0)

    assert answers == [False]
    assert [(point.name, point.value) for point in run.points] == [("loss", 1.0)]
    [end] = [event.attributes for event in run.events if event.kind == "ml.writer.end"]
    assert (end["otel_ml.recorded"], end["otel_ml.values"], end["otel_ml.dropped"]) == (1, 1, {})
    assert AFTER_SHUTDOWN.values == 0


def test_a_finalizer_that_ends_a_run_which_is_being_ended_does_not_wait_for_itself() -> None:
    answers = []

    def end_again() -> None:
        eventually(lambda: not RUNTIME.is_active)
        answers.append(otel_ml.shutdown(60.0))

    with capture() as run:
        otel_ml.log({"loss": 1.0}, step=0)
        otel_ml.log_text("note", Text(end_again))  # type: ignore[arg-type] # the same
        assert otel_ml.shutdown(20.0)

    assert answers == [False]
    assert [(point.name, point.value) for point in run.points] == [("loss", 1.0)]


def test_a_finalizer_that_records_at_the_step_that_is_being_made_finds_the_same_one() -> None:
    made: list[Step] = []
    wanted = -1

    def meanwhile(phase: str, _: object) -> None:
        nonlocal wanted
        if phase == "start" and wanted >= 0:
            number, wanted = wanted, -1
            made.append(STEPS.step(STEPS.axis("step"), number))

    before = gc.get_threshold()
    with capture():
        otel_ml.set_step(0)
        gc.callbacks.append(meanwhile)
        gc.set_threshold(1)  # garbage is collected wherever something is made; from Python 3.12 on, soon after
        try:
            for number in range(1, 50):
                wanted = number
                otel_ml.set_step(number)
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(meanwhile)

        assert made
        assert [step for step in made if STEPS.axis("step").steps[step.index or 0] is not step] == []
