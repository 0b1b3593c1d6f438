"""An inspected step of a GPU: a handful of launches, and the values that operations of torch give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import otel_ml
from otel_ml.diagnostics.inspection import Inspector
from otel_ml.diagnostics.tensor_statistics import sightings
from otel_ml.testing import Capture, otel_ml_capture
from tests.fake_cuda import FakeCuda
from tests.unit.otel_ml.diagnostics import kernels_on_fake_cuda
from tests.unit.otel_ml.diagnostics.kernels_on_fake_cuda import card

__all__ = ["card", "otel_ml_capture"]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy warns of what we look for

PLAIN = ["min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"]
FP8 = ["underflows%", "overflows%", "scale_inv_min", "scale_inv_max", "mse"]


@pytest.fixture
def cuda(card: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    monkeypatch.setattr(sightings, "launch", kernels_on_fake_cuda._launch)
    return card


def config(**tensors: list[str]) -> dict[str, Any]:
    """Return what is asked of each tensor, plain statistics and those of FP8."""
    plain = [{"tensor": name, "stats": [s for s in stats if s in PLAIN]} for name, stats in tensors.items()]
    fp8 = [{"tensor": name, "stats": [s for s in stats if s not in PLAIN]} for name, stats in tensors.items()]
    features = {
        "LogTensorStats": {"tensors_struct": [one for one in plain if one["stats"]]},
        "LogFp8TensorStats": {"tensors_struct": [one for one in fp8 if one["stats"]]},
    }
    used = {name: options for name, options in features.items() if options["tensors_struct"]}
    return {"all": {"layers": {"layer_name_regex_pattern": ".*"}, "transformer_engine": used}}


class Passes:
    """A pass forward and back through layers; autograd has no such device, so its part in the latter is played here."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.net = net
        self.outputs: list[torch.Tensor] = []
        for layer in net.modules():
            if layer is not net:
                layer.register_forward_hook(lambda _, __, output: self.outputs.append(output))

    def __call__(self, x: torch.Tensor, gradients: list[torch.Tensor]) -> None:
        self.net(x)
        for output, gradient in zip(reversed(self.outputs), gradients, strict=True):
            for hook in (getattr(output, "_backward_hooks", None) or {}).values():
                hook(gradient)
        self.outputs.clear()


def shown(captured: Capture) -> dict[tuple[str, int], tuple[float, float, float, int]]:
    return {
        (point.name, point.step): (point.value / point.count, point.min, point.max, point.count)
        for point in captured.points
        if point.name.startswith("inspect/")
    }


def test_a_step_of_24_layers_is_a_handful_of_operations(otel_ml_capture: Capture, cuda: FakeCuda) -> None:
    net = cuda.module(torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(24)]))
    five = ["min", "max", "mean", "std", "l2_norm"]
    asked = {"weight": five, "activation": [*five, "underflows%", "mse"], "gradient": five}
    inspector = Inspector(net, config(**asked))
    passes = Passes(net)
    x, gradients = cuda.tensor(torch.randn(4, 8)), [cuda.tensor(torch.randn(4, 8)) for _ in range(24)]

    def step(number: int) -> Any:
        otel_ml.set_step(number)
        with cuda.counted() as counts:
            passes(x, gradients)
            inspector.step()
        return counts

    step(0)
    watched = step(1)
    inspector.close()
    bare = step(2)

    assert watched["launches"] - bare["launches"] <= 12
    assert watched["operations"] - bare["operations"] <= 18
    assert cuda.waits == []
    print(watched, bare)
    print(len(shown(otel_ml_capture)), 24 * (3 * 5 + 2))
    assert 0
