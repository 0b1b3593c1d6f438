"""What the Inspector says of a layer's tensors is what torch says of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.diagnostics.inspection import Inspector
from tests.gpu.conftest import StartJob
from tests.gpu.devices import Device
from tests.gpu.test_synchronisation import STATISTICS

STEPS = 4
WIDTH = 96


def statistics(tensor: Any) -> dict[str, float]:
    whole = tensor.detach().cpu().double()
    return {
        "min": whole.min().item(),
        "max": whole.max().item(),
        "mean": whole.mean().item(),
        "std": whole.std(correction=0).item(),
        "l2_norm": whole.square().sum().sqrt().item(),
    }


def rounded(tensor: Any) -> dict[str, float]:
    """Return what rounding to FP8 with the scale of the tensor's maximum does, by torch's own type."""
    values = tensor.detach().cpu().float()
    scale = torch.finfo(torch.float8_e4m3fn).max / values.abs().max()
    back = (values * scale).to(torch.float8_e4m3fn).float() / scale
    return {
        "underflows_percent": ((back == 0) & (values != 0)).double().mean().item() * 100,
        "mse": (back.double() - values.double()).square().mean().item(),
    }


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_statistics_are_those_of_the_tensors_at_the_call(device: Device, job: StartJob, kind: str) -> None:
    torch.manual_seed(0)
    dtype = getattr(torch, kind)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(inplace=True), torch.nn.Linear(WIDTH, WIDTH)]
    model = torch.nn.Sequential(*layers).to(device.kind, dtype)
    seen: dict[str, Any] = {}
    model[0].register_forward_hook(lambda _, inputs, __: seen.update(activation=inputs[0].detach().clone()))
    want: list[dict[str, dict[str, float]]] = []
    with job() as run:
        inspector = Inspector(model, STATISTICS)
        for step in otel_ml.steps(range(STEPS)):
            inputs = torch.randn(32, WIDTH, device=device.kind, dtype=dtype) * (step + 1)
            model.zero_grad()
            model(inputs).float().square().mean().backward()
            inspector.step()
            want.append(
                {
                    "weight": statistics(model[0].weight),
                    "activation": {**statistics(seen["activation"]), **rounded(seen["activation"])},
                }
            )
            inputs.zero_()
        inspector.close()

    for tensor in ("weight", "activation"):
        for name in want[0][tensor]:
            found = run[f"inspect/0/{tensor}/{name}"]
            assert found == pytest.approx([step[tensor][name] for step in want], rel=1e-5, abs=1e-6), name


def test_only_the_steps_that_are_due_are_inspected(device: Device, job: StartJob) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH)).to(device.kind)
    often = {"enabled": True, "stats": ["max"], "tensors": ["weight", "activation"], "freq": 5}
    section = {**STATISTICS["s"], "transformer_engine": {"LogTensorStats": often}}
    with job() as run:
        inspector = Inspector(model, {"s": section})
        for _ in otel_ml.steps(range(11)):
            model.zero_grad()
            model(torch.ones(2, WIDTH, device=device.kind)).square().mean().backward()
            inspector.step()
        inspector.close()

    assert run.steps("inspect/0/activation/max") == run.steps("inspect/0/weight/max") == [0, 5, 10]
