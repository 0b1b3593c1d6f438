"""Members of an enumeration of texts are the texts that they are, wherever a call takes a name."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import pytest

import otel_ml
from otel_ml.integrations.stages import stage
from otel_ml.testing import Capture, capture


class Name(str, Enum):
    """As programs have had them since before `StrEnum`: `format()` of a member says its class."""

    LOSS = "loss"
    VAL = "val"
    TASK = "task"


class Reduce(str, Enum):
    MAX = "max"
    SUM = "sum"
    DP = "dp"


def _in_a_stage() -> None:
    with stage("eval"):
        otel_ml.log({Name.LOSS: 1.0})


def _timed() -> None:
    with otel_ml.timed(Name.LOSS):
        pass


def _timer() -> None:
    timer = otel_ml.timer(Name.LOSS)
    timer.start()
    timer.stop()


def _operation() -> None:
    with otel_ml.operation(Name.LOSS):
        pass


CALLS: dict[str, tuple[Callable[[], None], str]] = {
    "name": (lambda: otel_ml.log({Name.LOSS: 1.0}), "loss"),
    "prefix": (lambda: otel_ml.log({"loss": 1.0}, prefix=Name.VAL), "val/loss"),
    "name below a prefix": (lambda: otel_ml.log({Name.LOSS: 1.0}, prefix="val"), "val/loss"),
    "both": (lambda: otel_ml.record(Name.LOSS, 1.0, prefix=Name.VAL), "val/loss"),
    "in a stage": (_in_a_stage, "eval/loss"),
    "metric": (lambda: otel_ml.get_meter().metric(Name.LOSS).record(1.0), "loss"),
    "timed": (_timed, "time/loss"),
    "timer": (_timer, "time/loss"),
    "operation": (_operation, "time/loss/total"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_metric_is_called_as_its_text(call):
    record, expected = CALLS[call]
    with capture() as run:
        otel_ml.set_step(1)
        record()

        assert expected in {point.name for point in run.points}
        assert not [point.name for point in run.points if "Name." in point.name]


def test_attributes_parameters_events_and_final_values_are_called_as_their_text():
    with capture() as run:
        otel_ml.log({"loss": 1.0}, step=1, attributes={Name.TASK: Name.VAL})
        otel_ml.log_params({Name.LOSS: {Name.TASK: 1}}, prefix=Name.VAL)
        otel_ml.event("began", {Name.TASK: 1})
        otel_ml.init().summary({Name.LOSS: 0.5})

        assert [point.attributes for point in run.points] == [{"task": "val"}]
        assert _bodies(run, "ml.params") == [{"val": {"loss": {"task": 1}}}]
        assert [event.attributes["task"] for event in run.events if event.kind == "began"] == [1]
        assert _bodies(run, "ml.summary") == [{"loss": 0.5}]


def test_a_text_in_a_stage_is_called_as_its_text():
    with capture() as run:
        otel_ml.set_step(1)
        with stage("eval"):
            otel_ml.log_text(Name.LOSS, "said")

        assert [event.name for event in run.events if event.kind == "ml.text"] == ["eval/loss"]


def test_what_was_called_by_a_text_and_by_a_member_is_one_metric():
    with capture() as run:
        otel_ml.log({Name.LOSS: 1.0}, step=1, prefix=Name.VAL)
        otel_ml.log({"loss": 3.0}, step=1, prefix="val")

        assert [(point.name, point.count) for point in run.points] == [("val/loss", 2)]


def test_a_reduction_travels_as_its_text():
    with capture() as run:
        otel_ml.log({"loss": 1.0}, step=1, reduce=(Reduce.MAX, "mean"), within=Reduce.SUM, over=Reduce.DP)

        assert [point.reduction for point in run.points] == ["sum>max,mean@dp"]


def _bodies(run: Capture, kind: str) -> list[object]:
    return [event.body for event in run.events if event.kind == kind]
