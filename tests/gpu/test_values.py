"""What is recorded is what the tensor held at the call, whatever happens to it afterwards."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import pytest
import torch

import otel_ml
from tests.gpu.conftest import StartJob
from tests.gpu.devices import Device

STEPS = 20
KINDS = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool")


def scalar(value: float, device: str, kind: str = "float32") -> Any:
    return torch.full((), value, device=device, dtype=getattr(torch, kind))


def test_a_scalar_of_each_type_is_exact(device: Device, job: StartJob) -> None:
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            otel_ml.log({kind: scalar(step % 2 if kind == "bool" else step, device.kind, kind) for kind in KINDS})
            otel_ml.log({"tenth": scalar(step + 0.1, device.kind, "float64")})
            otel_ml.log({"large": scalar(2**53 - 1 - step, device.kind, "int64")})

    for kind in KINDS:
        assert run[kind] == [step % 2 if kind == "bool" else step for step in range(STEPS)], kind
    assert run["tenth"] == [step + 0.1 for step in range(STEPS)]
    assert run["large"] == [2**53 - 1 - step for step in range(STEPS)]


def test_nan_and_infinity_are_recorded_as_what_they_are(device: Device, job: StartJob) -> None:
    with job() as run:
        for step in otel_ml.steps(range(3)):
            otel_ml.log({"loss": scalar((1.0, math.inf, math.nan)[step], device.kind)})

    assert run["loss"][:2] == [1.0, math.inf]
    assert math.isnan(run["loss"][2])


def test_what_a_transform_computes_on_the_way_is_recorded_beside_what_was_recorded_before(
    device: Device, job: StartJob
) -> None:
    def loss(weight: Any) -> Any:
        squared = weight * weight
        otel_ml.log({"squared": squared, "weight": weight})
        otel_ml.record("alone", squared)
        return squared

    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            weight = scalar(step, device.kind)
            otel_ml.log({"before": weight})
            otel_ml.log({"slope": torch.func.grad(loss)(weight)})

    every = list(range(STEPS))
    assert run["before"] == run["weight"] == every
    assert run["squared"] == run["alone"] == [step**2 for step in every]
    assert run["slope"] == [2 * step for step in every]


def test_a_change_in_place_after_the_call_does_not_change_what_was_recorded(device: Device, job: StartJob) -> None:
    meter = otel_ml.get_meter()
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            logged, recorded = scalar(step, device.kind), scalar(2 * step, device.kind)
            device.busy(1e-3)
            otel_ml.log({"logged": logged})
            meter.metric("recorded").record(recorded)
            logged.add_(1000)
            recorded.zero_()

    assert run["logged"] == list(range(STEPS))
    assert run["recorded"] == [2 * step for step in range(STEPS)]


def test_memory_that_is_used_again_after_the_call_does_not_change_what_was_recorded(
    device: Device, job: StartJob
) -> None:
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            device.busy(1e-3)
            for index in range(10):
                value = scalar(step + index / 10, device.kind, "float64")
                otel_ml.log({f"m{index}": value})
                del value
                scalar(-1, device.kind, "float64")  # the allocator gives it the same memory

    for index in range(10):
        assert run[f"m{index}"] == [step + index / 10 for step in range(STEPS)]


def test_values_and_weights_of_another_stream_are_those_of_that_stream(device: Device, job: StartJob) -> None:
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            with device.other_stream():
                device.busy(5e-3)
                for value, weight in ((step, 1), (step + 4, 3)):
                    held = scalar(value, device.kind)
                    otel_ml.log({"v": held}, weight=scalar(weight, device.kind))
                    del held
            otel_ml.log({"beside": scalar(step, device.kind)})

    assert run["v"] == [step + 3 for step in range(STEPS)]
    assert run["beside"] == list(range(STEPS))


def test_a_vector_is_as_many_records_as_it_has_elements(device: Device, job: StartJob) -> None:
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            vector = torch.arange(4, device=device.kind, dtype=torch.float32) + step
            otel_ml.log({"vector": vector}, reduce=("mean", "max", "min", "count"))
            vector.zero_()

    assert run["vector"] == [step + 1.5 for step in range(STEPS)]
    assert run["vector/max"] == [step + 3 for step in range(STEPS)]
    assert run["vector/min"] == list(range(STEPS))
    assert run["vector/count"] == [4] * STEPS


def test_fifty_values_a_step_are_all_there_however_they_are_recorded(device: Device, job: StartJob) -> None:
    meter = otel_ml.get_meter()
    one_by_one = [meter.metric(f"one{index}") for index in range(50)]
    want = torch.rand(60, 50, dtype=torch.float64)
    values = want.to(device.kind)
    with job() as run:
        for step in otel_ml.steps(range(60)):
            otel_ml.log({f"together{index}": values[step, index] for index in range(50)})
            for index, metric in enumerate(one_by_one):
                metric.record(values[step, index].to(torch.float32 if index % 2 else torch.float64))

    for index in range(50):
        assert run[f"together{index}"] == want[:, index].tolist()
        assert run[f"one{index}"] == (want[:, index].float().tolist() if index % 2 else want[:, index].tolist())


def test_values_of_several_devices_meet_in_one_call(device: Device, job: StartJob) -> None:
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            otel_ml.log({f"of{index}": scalar(step + index, each) for index, each in enumerate(device.all)})
            otel_ml.log({"host": scalar(step, "cpu"), "number": float(step)})

    for index, _ in enumerate(device.all):
        assert run[f"of{index}"] == [step + index for step in range(STEPS)]
    assert run["host"] == run["number"] == list(range(STEPS))


def test_a_value_that_is_part_of_the_backward_pass_can_be_logged_and_trained_on(device: Device, job: StartJob) -> None:
    weight = torch.ones((), device=device.kind, requires_grad=True)
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            loss = weight * (step + 1)
            otel_ml.log({"loss": loss})
            loss.backward()

    assert run["loss"] == [step + 1 for step in range(STEPS)]
    assert weight.grad is not None
    assert weight.grad.item() == sum(step + 1 for step in range(STEPS))


if find_spec("jax"):

    @pytest.mark.gpu
    def test_arrays_of_jax_are_recorded_too(job: StartJob, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        from jax import numpy

        with job() as run:
            for step in otel_ml.steps(range(STEPS)):
                otel_ml.log({"j": numpy.float32(step) * 2, "half": numpy.bfloat16(1.5)})

        assert run["j"] == [2 * step for step in range(STEPS)]
        assert run["half"] == [1.5] * STEPS
