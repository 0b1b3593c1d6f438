"""Nothing of otel_ml waits for a device, on any thread; torch says so itself, and so does its profiler."""

from __future__ import annotations

import itertools
import time
import warnings
from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.diagnostics import dynamics
from otel_ml.diagnostics.inspection import Inspector
from tests.gpu.conftest import StartJob
from tests.gpu.devices import Device
from tests.gpu.profiled import profiled
from tests.gpu.warm import warmed

STEPS = 20
WAITED = "called a synchronizing CUDA operation"
"""What torch says of a call that waits; once a process it says that it does not know of all of them."""

STATISTICS = {
    "s": {
        "enabled": True,
        "layers": {"layer_name_regex_pattern": ".*"},
        "transformer_engine": {
            "LogTensorStats": {
                "enabled": True,
                "stats": ["min", "max", "mean", "std", "l2_norm"],
                "tensors": ["weight", "activation", "gradient"],
                "freq": 1,
            },
            "LogFp8TensorStats": {
                "enabled": True,
                "tensors_struct": [{"tensor": "activation", "stats": ["underflows%", "mse"]}],
            },
        },
    }
}


class Everything:
    """A step of a small model with all that is recorded on a device."""

    def __init__(self, device: Device) -> None:
        torch.manual_seed(0)
        self.device = device.kind
        self.model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).to(device.kind)
        self.norms = dynamics.Norms(self.model)
        self.inspector = Inspector(self.model, STATISTICS)
        self.metric = otel_ml.get_meter().metric("one")
        self.inputs = torch.randn(8, 64, device=device.kind)

    def step(self) -> Any:
        with otel_ml.operation("train"), otel_ml.timed("forward", device=self.device):
            loss = self.model(self.inputs).square().mean()
        self.model.zero_grad()
        loss.backward()
        self.norms.record_gradients()
        self.norms.record_parameters()
        self.inspector.step()
        self.metric.record(loss)
        otel_ml.log({f"m{index}": loss.detach() * index for index in range(10)})
        otel_ml.log({"vector": self.inputs[0]}, weight=loss.detach().abs())
        return loss


@pytest.mark.parametrize("mode", ["error", "warn"])
def test_torch_sees_no_call_that_waits_and_every_value_arrives(device: Device, job: StartJob, mode: str) -> None:
    everything = Everything(device)
    with job() as run, warnings.catch_warnings(record=True) as seen, device.strict(mode):
        warnings.simplefilter("always")
        for _ in otel_ml.steps(range(STEPS)):
            everything.step()
        otel_ml.flush(20)
        everything.inspector.close()
        otel_ml.shutdown()

    assert [str(warning.message) for warning in seen if WAITED in str(warning.message)] == []
    every = list(range(STEPS))
    names = ["one", "vector", "grad/norm", "param/norm", "inspect/0/weight/std", "inspect/0/activation/mse"]
    for name in [*names, *(f"m{index}" for index in range(10))]:
        assert run.steps(name) == every, name
    assert [run.steps(name) for name in run.read if name.startswith("time/forward")].count(every) >= 1


def test_no_thread_makes_a_call_that_waits_once_a_step_is_like_the_one_before(device: Device, job: StartJob) -> None:
    with job():
        everything, numbers = Everything(device), itertools.count()

        def step() -> None:
            otel_ml.set_step(next(numbers))
            everything.step()

        warmed(step)
        # Within the profile there is what the background thread does for the step.
        found = profiled(lambda: (step(), otel_ml.set_step(next(numbers)), otel_ml.flush(20)), device.synchronize)
        everything.inspector.close()

    assert found.launches > 0 or device.kind == "cpu"
    assert found.waits == []
    assert found.waits_of_others == []


def test_the_caller_goes_on_while_the_device_is_far_behind(device: Device, job: StartJob) -> None:
    with job() as run:
        everything, numbers = Everything(device), itertools.count()

        def step() -> None:
            otel_ml.set_step(next(numbers))
            everything.step()

        warmed(step)
        device.synchronize()
        device.busy(1.0)
        step()
        is_behind = device.is_behind()
        everything.inspector.close()

    assert run.steps("one") == list(range(next(numbers)))
    assert is_behind


def test_memory_of_the_device_is_given_back_and_stays_flat(device: Device, job: StartJob) -> None:
    with job() as run:
        values = torch.rand(20, device=device.kind)
        device.synchronize()
        device.forget_peak()
        before = device.held()
        for step in otel_ml.steps(range(300)):
            otel_ml.log({f"m{index}": values[index] for index in range(20)})
            if step == 200:
                middle = device.peak()
        otel_ml.flush(20)
        after, most = device.held(), device.peak()

    assert run.steps("m19") == list(range(300))
    assert most - before < 16 * 2**20
    assert most - middle < 2 * 2**20
    assert after - before < 2 * 2**20


@pytest.mark.gpu
def test_the_interpreter_is_not_held_while_values_come_from_a_busy_device(cuda: Device, job: StartJob) -> None:
    """Counting goes on while the device computes; a thread that waits for it with the interpreter would stop it."""
    with job() as run:
        matrix = torch.randn(2048, 2048, device="cuda")
        longest = 0.0
        for _ in otel_ml.steps(range(10)):
            product = matrix @ matrix
            cuda.busy(0.2)
            otel_ml.log({f"m{index}": product[0, index] for index in range(20)})
            last = until = time.perf_counter()
            while last < until + 0.1:
                now = time.perf_counter()
                longest, last = max(longest, now - last), now

    assert run.steps("m0") == list(range(10))
    assert longest < 0.1
