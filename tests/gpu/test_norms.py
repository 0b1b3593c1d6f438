"""Norms are those of a float64 reference, whatever the type of the tensors and however they are cut."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import distributed

import otel_ml
from otel_ml.diagnostics import dynamics
from tests.gpu.conftest import StartJob
from tests.gpu.devices import Device
from tests.ports import free_port

STEPS = 6
WIDTH, LAYERS = 128, 24


def model(device: Device, kind: str = "float32") -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    return torch.nn.Sequential(*layers).to(device.kind, getattr(torch, kind))


def train(trained: Any, device: Device, kind: str = "float32") -> None:
    inputs = torch.randn(16, WIDTH, device=device.kind, dtype=getattr(torch, kind))
    trained.zero_grad()
    trained(inputs).float().square().sum().backward()


def reference(tensors: list[Any]) -> dict[str, float]:
    """Return what float64 on the host makes of them."""
    whole = torch.cat([tensor.detach().cpu().double().flatten() for tensor in tensors])
    return {
        "norm": whole.square().sum().sqrt().item(),
        "abs_max": whole.abs().max().item(),
        "zeros": float((whole == 0).sum().item()),
    }


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_norms_of_each_type_are_those_of_float64(device: Device, job: StartJob, kind: str) -> None:
    trained = model(device, kind)
    norms, want = dynamics.Norms(trained), []
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            train(trained, device, kind)
            with torch.no_grad():
                trained[0].weight[step].zero_()
            norms.record_gradients()
            norms.record_parameters()
            parameters = list(trained.parameters())
            want.append((reference([one.grad for one in parameters]), reference(parameters)))

    for place, name in enumerate(("grad", "param")):
        for what, tolerance in (("norm", 1e-6), ("abs_max", 0), ("zeros", 0)):
            asked = [each[place][what] for each in want]
            assert run[f"{name}/{what}"] == pytest.approx(asked, rel=tolerance, abs=0), f"{name}/{what}"


def test_a_nan_in_one_gradient_is_not_hidden(device: Device, job: StartJob) -> None:
    trained = model(device)
    norms = dynamics.Norms(trained)
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            train(trained, device)
            if step == 3:
                trained[5].bias.grad[7] = math.nan
            norms.record_gradients()

    assert [math.isnan(value) for value in run["grad/norm"]] == [step == 3 for step in range(STEPS)]
    assert run["grad/nonfinite"] == [1.0 if step == 3 else 0.0 for step in range(STEPS)]


def test_a_tensor_of_more_elements_than_a_whole_number_of_32_bits_counts_is_summed_to_its_end(
    device: Device, job: StartJob
) -> None:
    holder = torch.nn.Module()
    holder.large = torch.nn.Parameter(torch.zeros(device.many, device=device.kind, dtype=torch.bfloat16))
    with torch.no_grad():
        holder.large[0], holder.large[-1] = 3.0, -4.0
    norms = dynamics.Norms(holder)
    with job() as run:
        otel_ml.set_step(0)
        norms.record_parameters()

    assert run["param/norm"] == [5.0]
    assert run["param/abs_max"] == [4.0]
    assert run["param/zeros"] == [device.many - 2]


def test_parameters_that_are_not_contiguous_empty_or_a_number_count_as_what_they_hold(
    device: Device, job: StartJob
) -> None:
    holder = torch.nn.Module()
    base = torch.arange(24, device=device.kind, dtype=torch.float32).reshape(4, 6)
    holder.transposed = torch.nn.Parameter(base.t())
    holder.every_other = torch.nn.Parameter(base[:, ::2])
    holder.number = torch.nn.Parameter(torch.tensor(7.0, device=device.kind))
    holder.empty = torch.nn.Parameter(torch.zeros(0, 3, device=device.kind))
    want = reference([holder.transposed, holder.every_other, holder.number])
    norms = dynamics.Norms(holder)
    with job() as run:
        otel_ml.set_step(0)
        norms.record_parameters()

    for what in ("norm", "abs_max", "zeros"):
        assert run[f"param/{what}"] == pytest.approx([want[what]], rel=1e-6)


@pytest.fixture
def group(device: Device) -> Iterator[None]:
    """A group of torch.distributed with this process alone."""
    if device.kind == "cuda":
        torch.cuda.set_device(0)
    distributed.init_process_group(device.backend, init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("ignore")
def test_norms_of_a_model_that_fsdp_has_cut_are_those_of_the_whole(device: Device, job: StartJob) -> None:
    from torch.distributed.fsdp import fully_shard

    trained = model(device)
    for layer in trained:
        fully_shard(layer)
    fully_shard(trained)
    norms, want = dynamics.Norms(trained), []
    with job() as run:
        for _ in otel_ml.steps(range(STEPS)):
            train(trained, device)
            norms.record_gradients()
            norms.record_parameters()
            parameters = list(trained.parameters())
            grads = reference([one.grad.full_tensor() for one in parameters])
            want.append((grads, reference([one.full_tensor() for one in parameters])))

    assert run["grad/norm"] == pytest.approx([grads["norm"] for grads, _ in want], rel=1e-6)
    assert run["param/norm"] == pytest.approx([params["norm"] for _, params in want], rel=1e-6)


@pytest.mark.usefixtures("group")
@pytest.mark.filterwarnings("ignore")
def test_a_dtensor_is_recorded_as_its_value(device: Device, job: StartJob) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    mesh = init_device_mesh(device.kind, (1,))
    with job() as run:
        for step in otel_ml.steps(range(STEPS)):
            value = torch.full((), float(step), device=device.kind)
            otel_ml.log({"loss": distribute_tensor(value, mesh, [Replicate()])})

    assert run["loss"] == list(range(STEPS))
