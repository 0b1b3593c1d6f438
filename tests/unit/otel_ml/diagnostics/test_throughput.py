"""Rates of the job and of a device, over a rolling window."""

from __future__ import annotations

import math
from typing import Any

import pytest

import otel_ml
from otel_ml.diagnostics.throughput import MEASURES, Throughput
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(throughput: Throughput, clock: Clock, durations: list[float], **done: float) -> None:
    for step, seconds in enumerate(durations):
        otel_ml.set_step(step)
        clock.now += seconds
        throughput.step(**done)


@pytest.mark.feature("M14", "better", "batches, samples, tokens per second of job and device, from the second step on")
@pytest.mark.feature("R13", "yes", "tokens per second per device and per data-parallel replica")
@pytest.mark.feature("N22", "yes", "throughput, TFLOP/s and MFU of job and device")
def test_rates_are_those_of_the_window(otel_ml_capture: Capture) -> None:
    clock = Clock()
    throughput = Throughput(window=2, clock=clock)

    run(throughput, clock, [1.0, 1.0, 1.0, 4.0], samples=8, tokens=100, batches=2)

    assert otel_ml_capture.values("throughput/samples_per_sec") == [8.0, 8.0, 16 / 5]
    assert otel_ml_capture.values("throughput/tokens_per_sec") == [100.0, 100.0, 40.0]
    assert otel_ml_capture.values("throughput/batches_per_sec") == [2.0, 2.0, 4 / 5]


def test_one_number_that_is_nan_does_not_end_the_rates(otel_ml_capture: Capture) -> None:
    clock = Clock()
    throughput = Throughput(window=2, clock=clock)
    for step, tokens in enumerate([100.0, 100.0, math.nan, 100.0, 100.0, 300.0]):
        otel_ml.set_step(step)
        clock.now += 1.0
        throughput.step(samples=8, tokens=tokens)

    rates = {p.step: p.value for p in otel_ml_capture.points if p.name == "throughput/tokens_per_sec"}
    assert math.isnan(rates.pop(2))  # shown, and the window begins anew
    assert rates == {1: 100.0, 4: 100.0, 5: 200.0}


@pytest.mark.parametrize("amount", ["samples", "tokens", "flops", "batches"])
def test_one_number_that_is_infinite_does_not_end_the_rates(otel_ml_capture: Capture, amount: str) -> None:
    clock = Clock()
    throughput = Throughput(window=3, clock=clock)
    for step, done in enumerate([100.0, 100.0, math.inf, 100.0, 100.0, 100.0]):
        otel_ml.set_step(step)
        clock.now += 1.0
        throughput.step(**{amount: done})

    name, unit = ("tflops", 1e12) if amount == "flops" else (f"{amount}_per_sec", 1.0)
    rates = {p.step: p.value * unit for p in otel_ml_capture.points if p.name == f"throughput/{name}"}
    assert rates == {1: 100.0, 2: math.inf, 4: 100.0, 5: 100.0}


def test_the_first_step_has_no_rate(otel_ml_capture: Capture) -> None:
    clock = Clock()

    run(Throughput(clock=clock), clock, [1.0], samples=8)

    assert otel_ml_capture.points == []


def test_a_device_does_its_part_of_what_the_replica_does(otel_ml_capture: Capture) -> None:
    clock = Clock()
    throughput = Throughput(devices_per_replica=4, peak=100e12, clock=clock)

    run(throughput, clock, [1.0, 2.0], tokens=1000, flops=160e12)

    assert otel_ml_capture.values("throughput/tokens_per_sec") == [500.0]
    assert otel_ml_capture.values("throughput/device/tokens_per_sec") == [125.0]
    assert otel_ml_capture.values("throughput/tflops") == [80.0]
    assert otel_ml_capture.values("throughput/device/tflops") == [20.0]
    assert otel_ml_capture.values("throughput/mfu") == [0.2]


@pytest.mark.feature("M15", "better", "TFLOP/s always; MFU only if the peak is known, which is reported once")
def test_without_a_known_peak_there_is_no_mfu_and_that_is_said_once(otel_ml_capture: Capture) -> None:
    clock = Clock()

    run(Throughput(clock=clock), clock, [1.0, 1.0, 1.0], flops=1e12)

    assert otel_ml_capture.values("throughput/tflops") == [1.0, 1.0]
    assert otel_ml_capture.values("throughput/mfu") == []
    assert [notice for notice in otel_ml_capture.notices if "mfu" in notice] == [
        "throughput/mfu is not recorded: no GPU. Pass Throughput(peak=…) in FLOP/s to have it. "
        "(otel-ml explain peak-unknown)"
    ]


def test_totals_are_summed_and_devices_averaged_and_the_slowest_shown(otel_ml_capture: Capture) -> None:
    clock = Clock()

    run(Throughput(clock=clock), clock, [1.0, 1.0], samples=1)

    reductions = {point.name: point.reduction for point in otel_ml_capture.points}
    assert reductions == {
        "throughput/batches_per_sec": "last>sum",
        "throughput/samples_per_sec": "last>sum",
        "throughput/device/batches_per_sec": "last>mean,min",
        "throughput/device/samples_per_sec": "last>mean,min",
    }


@pytest.mark.feature("I14", "yes", "FLOPs of every step and epoch, from a formula or counted by torch")
def test_the_flops_of_steps_and_epochs_add_up(otel_ml_capture: Capture) -> None:
    clock = Clock()
    throughput = Throughput(peak=1e12, clock=clock)
    for epoch in range(2):
        run(throughput, clock, [1.0, 1.0], flops=3e12 * (epoch + 1))
        throughput.epoch(epoch)

    assert otel_ml_capture.values("throughput/epoch_tflop", axis="epoch") == [6.0, 12.0]
    first = [
        point.value for point in otel_ml_capture.points if point.name == "throughput/step_tflop" and point.step == 0
    ]
    assert sum(first) == 9.0


@pytest.mark.parametrize("peak", [-1.0, "989 TFLOP/s", [1e12]])
def test_every_wrong_number_is_named_at_once(peak: Any) -> None:
    with pytest.raises(otel_ml.ConfigError) as raised:
        Throughput(window=0, devices_per_replica=0, peak=peak)

    assert len(raised.value.problems) == 3
    assert set(MEASURES) >= {"throughput/mfu"}
