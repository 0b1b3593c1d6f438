"""Tensors that are looked at later are those of the moment in which they were recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import otel_ml
from otel_ml.diagnostics import copies, dynamics, rl
from otel_ml.diagnostics.dynamics import host
from otel_ml.testing import Capture, otel_ml_capture
from tests.unit.otel_ml.diagnostics.elsewhere import elsewhere

__all__ = ["otel_ml_capture"]

WEIGHT = torch.zeros(3)
RECORDS: dict[str, Callable[[], None]] = {
    "param/norm": lambda: dynamics.Norms([("weight", WEIGHT)]).record_parameters(),
    "rl/train/advantage/max": lambda: rl.advantages(WEIGHT),
    "rl/train/kl/max": lambda: rl.kl(WEIGHT, torch.tensor([True, False, False])),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_tensor_that_changes_afterwards_is_recorded_as_it_was(otel_ml_capture: Capture, name: str) -> None:
    for step in range(3 * copies._COPIES):  # more than may wait
        otel_ml.set_step(step)
        WEIGHT.zero_()
        WEIGHT[0] = step
        RECORDS[name]()
    WEIGHT.fill_(-1.0)

    points = {point.step: point.max for point in otel_ml_capture.points if point.name == name}
    assert points == {step: float(step) for step in range(3 * copies._COPIES)}


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.zeros(2), torch.zeros(2, device="meta")],
        [torch.zeros(2), elsewhere([1.0])],
        [torch.zeros(40_000)],
        [torch.zeros(20_000)] * 7,
    ],
)
def test_what_is_large_or_elsewhere_is_not_copied(tensors: list[torch.Tensor]) -> None:
    assert host.copied(tensors) is None
