"""What the Inspector costs a model of 24 linear layers: 3 tensors, 5 statistics and FP8, in turns with a bare one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tests.benchmarks.gpu.training import blocks
from tests.gpu.devices import DEVICES, Device
from tests.gpu.profiled import profiled
from tests.gpu.warm import WARM, warmed

__all__ = ["inspection"]

PAIRS_OF_LAYERS = 12
STEPS = 5
"""Of a block where each step is inspected; else a block is as long as the schedule."""


def inspection(device: str, inspected: Sequence[int], freq: int, pairs: int) -> dict[str, Any]:
    """Return seconds a step with and without, and the launches that an inspected step has beyond a bare one's."""
    import otel_ml
    from otel_ml.diagnostics.inspection import Inspector

    where, (width, rows) = DEVICES[device], inspected
    watched, bare = (training(width, rows, where) for _ in range(2))
    otel_ml.init("bench")
    inspector, numbers = Inspector(watched[0], configuration(freq)), itertools.count()

    def step() -> None:
        otel_ml.set_step(next(numbers))
        watched[1]()
        inspector.step()

    warmed(step)
    for _ in range(2 * freq - (1 + WARM) % freq):  # the next one is due
        step()
    due = profiled(step, where.synchronize).launches
    for _ in range(freq - 1):  # a block begins with a step that is due
        step()
    found: dict[str, Any] = {**blocks(step, bare[1], where, pairs=pairs, steps=max(freq, STEPS), uncounted=0)}
    found["launches"] = due - profiled(bare[1], where.synchronize).launches
    inspector.close()
    otel_ml.shutdown()
    return found


def training(width: int, rows: int, device: Device) -> tuple[Any, Callable[[], None]]:
    """Return a model and its step, without an update: weights are seen at the step's end."""
    import torch

    torch.manual_seed(0)
    layers = (
        torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
        for _ in range(PAIRS_OF_LAYERS)
    )
    model = torch.nn.Sequential(*layers).to(device.kind, torch.bfloat16)
    inputs = torch.randn(rows, width, device=device.kind, dtype=torch.bfloat16)

    def step() -> None:
        model.zero_grad()
        model(inputs).float().square().mean().backward()

    return model, step


def configuration(freq: int) -> dict[str, Any]:
    """Return it in the form of NVIDIA's inspection tool."""
    statistics = {
        "LogTensorStats": {
            "enabled": True,
            "stats": ["min", "max", "mean", "std", "l2_norm"],
            "tensors": ["weight", "activation", "gradient"],
            "freq": freq,
        },
        "LogFp8TensorStats": {
            "enabled": True,
            "tensors_struct": [{"tensor": "activation", "stats": ["underflows%", "mse"], "freq": freq}],
        },
    }
    layers = {"layer_name_regex_pattern": ".*"}
    return {"section": {"enabled": True, "layers": layers, "transformer_engine": statistics}}
