"""What was consumed, what remains, and values over samples and tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.diagnostics.progress import Progress
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.feature("M16", "better", "remaining time, steps, samples and tokens, at the pace of this start")
def test_the_remaining_time_follows_the_pace(otel_ml_capture: Capture) -> None:
    clock = Clock()
    progress = Progress(steps=10, samples=80, tokens=800, clock=clock)

    for step in range(4):
        otel_ml.set_step(step)
        clock.now += 2.0
        progress.step(samples=8, tokens=80)

    assert otel_ml_capture.values("time/remaining") == [18.0, 16.0, 14.0, 12.0]
    assert otel_ml_capture.values("progress/remaining_steps")[-1] == 6
    assert otel_ml_capture.values("progress/remaining_samples")[-1] == 48
    assert otel_ml_capture.values("progress/remaining_tokens")[-1] == 480
    assert otel_ml_capture.values("progress/fraction") == [0.1, 0.2, 0.3, 0.4]


def test_a_restart_goes_on_counting_at_its_own_pace(otel_ml_capture: Capture) -> None:
    clock = Clock()
    before = Progress(steps=10, clock=clock)
    otel_ml.set_step(0)
    before.step(samples=8)
    clock.now = 1000.0  # the job was down

    after = Progress(steps=10, state=before.state(), clock=clock)
    otel_ml.set_step(1)
    clock.now += 3.0
    after.step(samples=8)

    assert otel_ml_capture.values("progress/samples") == [8, 16]
    assert otel_ml_capture.values("time/remaining")[-1] == 24.0


@pytest.mark.feature("M13", "better", "any value over samples and tokens, on axes of their own, in every backend")
def test_values_stand_over_steps_samples_and_tokens(otel_ml_capture: Capture) -> None:
    progress = Progress()
    for step in range(2):
        otel_ml.set_step(step)
        progress.step(samples=8, tokens=100)
        progress.log({"loss": 1.0 - step})

    where = {(point.axis, point.step) for point in otel_ml_capture.points if point.name == "loss"}
    assert where == {("step", 0), ("step", 1), ("samples", 8), ("samples", 16), ("tokens", 100), ("tokens", 200)}


@pytest.mark.feature("I18", "yes", "epoch time on an axis of its own")
def test_an_epoch_is_timed_and_steps_inside_it_stay_where_they_are(otel_ml_capture: Capture) -> None:
    clock = Clock()
    progress = Progress(clock=clock)
    for epoch in range(2):
        with progress.epoch(epoch):
            otel_ml.set_step(epoch)
            otel_ml.log({"loss": 1.0})
            clock.now += 5.0 + epoch

    assert otel_ml_capture.values("time/epoch", axis="epoch") == [5.0, 6.0]
    assert otel_ml_capture.values("loss") == [1.0, 1.0]


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(otel_ml.ConfigError) as raised:
        Progress(steps=0, tokens=-1, state={"no": 1})

    assert len(raised.value.problems) == 3


def test_what_is_no_number_is_named_as_one_that_is_too_small() -> None:
    strange: Any = {"steps": "a", "samples": torch.ones(2), "tokens": math.nan, "state": 3}
    with pytest.raises(otel_ml.ConfigError) as raised:
        Progress(**strange)

    assert len(raised.value.problems) == 4
