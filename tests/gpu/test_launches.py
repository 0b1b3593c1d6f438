"""What is launched on a device for a step, counted by the profiler: a few launches, however many values there are.

`make test` holds the same budgets with a device that only counts.
"""

from __future__ import annotations

import itertools

import pytest
import torch

import otel_ml
from otel_ml.diagnostics import dynamics
from otel_ml.diagnostics.inspection import Inspector
from tests.gpu.conftest import StartJob
from tests.gpu.devices import Device
from tests.gpu.profiled import profiled
from tests.gpu.test_synchronisation import STATISTICS
from tests.gpu.warm import warmed


@pytest.mark.gpu
def test_fifty_scalars_are_a_gather_and_a_copy(cuda: Device, job: StartJob) -> None:
    values = {f"m{index}": torch.rand((), device="cuda") for index in range(50)}
    numbers = itertools.count()
    with job():

        def step() -> None:
            otel_ml.set_step(next(numbers))
            otel_ml.log(values)

        warmed(step)
        found = profiled(lambda: (step(), otel_ml.set_step(next(numbers))), cuda.synchronize)

    assert found.launches <= 4


@pytest.mark.gpu
def test_norms_of_gradients_and_parameters_are_a_dozen(cuda: Device, job: StartJob) -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(150)]).cuda()
    model(torch.randn(2, 64, device="cuda")).square().mean().backward()
    numbers = itertools.count()
    with job():
        norms = dynamics.Norms(model)

        def step() -> None:
            otel_ml.set_step(next(numbers))
            norms.record_gradients()
            norms.record_parameters()

        warmed(step)
        found = profiled(lambda: (step(), otel_ml.set_step(next(numbers))), cuda.synchronize)

    assert found.launches <= 12


@pytest.mark.gpu
def test_the_inspection_of_twenty_four_layers_adds_thirty_at_most(cuda: Device, job: StartJob) -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(24)]).cuda()
    inputs = torch.randn(8, 64, device="cuda")

    def train() -> None:
        model.zero_grad()
        model(inputs).square().mean().backward()

    warmed(train)
    bare = profiled(train, cuda.synchronize).launches
    numbers = itertools.count()
    with job():
        inspector = Inspector(model, STATISTICS)

        def step() -> None:
            otel_ml.set_step(next(numbers))
            train()
            inspector.step()

        warmed(step)
        found = profiled(lambda: (step(), otel_ml.set_step(next(numbers))), cuda.synchronize)
        inspector.close()

    assert found.launches - bare <= 30
