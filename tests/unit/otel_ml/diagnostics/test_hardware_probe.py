"""A test of the hardware every so often, where the program calls for it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.diagnostics import hardware
from otel_ml.exceptions import ConfigError
from otel_ml.testing import Capture, capture, otel_ml_capture
from tests.fake_cuda import FakeCuda
from tests.waiting import eventually

__all__ = ["otel_ml_capture"]


def seconds_of(capture: Capture, name: str) -> dict[int | None, float]:
    return {p.step: p.mean for p in capture.points if p.name == f"time/hardware_test/{name}"}


@pytest.mark.feature("M38", "better", "a product and a copy of memory on every rank, each rank's time in the run")
def test_the_first_and_every_nth_step_have_the_time_of_a_product_and_of_a_copy(otel_ml_capture: Capture) -> None:
    probe = hardware.Probe(3, side=16, mebibytes=1)

    for _ in otel_ml.steps(range(7)):
        probe.step()

    for name in ("matmul", "copy"):
        assert list(seconds_of(otel_ml_capture, name)) == [0, 3, 6]
        assert all(seconds > 0 for seconds in seconds_of(otel_ml_capture, name).values())
    [reduction] = {p.reduction for p in otel_ml_capture.points if p.name.startswith("time/hardware_test/")}
    assert reduction == "sum>max,argmax,min,argmin,rank"


def test_nothing_is_tested_and_no_thread_begins_before_the_program_calls(otel_ml_capture: Capture) -> None:
    threads = threading.active_count()

    probe = hardware.Probe()

    assert threading.active_count() == threads
    assert not otel_ml_capture.points
    del probe


def test_torch_does_the_same_on_a_device_of_its_own(otel_ml_capture: Capture) -> None:
    probe = hardware.Probe(1, side=8, mebibytes=1, device="cpu")

    for _ in otel_ml.steps(range(2)):
        probe.step()

    assert list(seconds_of(otel_ml_capture, "matmul")) == [0, 1]


def test_a_device_that_is_not_the_current_one_is_timed_by_its_own_clock(cuda: FakeCuda) -> None:
    other = cuda.default(1)
    other.hold()
    with capture() as run:
        probe = hardware.Probe(1, side=8, mebibytes=1, device="cuda:1")
        otel_ml.set_step(0)
        probe.step()
        otel_ml.set_step(1)
        assert not seconds_of(run, "matmul")

        other.release()
        assert eventually(lambda: list(seconds_of(run, "matmul")) == [0])
    assert torch.cuda.current_device() == 0


def test_a_device_that_is_not_there_is_said_and_training_goes_on(
    otel_ml_capture: Capture, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = hardware.Probe(device="no such device", side=8, mebibytes=1)

    for _ in otel_ml.steps(range(3)):
        probe.step()
        otel_ml.log({"trained": 1.0})

    assert otel_ml_capture.values("trained") == [1.0] * 3
    assert not seconds_of(otel_ml_capture, "matmul")


@pytest.mark.parametrize("wrong", [{"every": 0}, {"side": 2.5}, {"mebibytes": True}, {"every": -1, "side": 0}])
def test_numbers_that_are_none_are_refused_all_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        hardware.Probe(**wrong)

    assert all(f"Probe({name}=): expected a whole number of at least 1" in str(error.value) for name in wrong)
