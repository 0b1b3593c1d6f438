"""What FP8 would make of a tensor, with torch's own float8 types, on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from otel_ml.diagnostics.inspection import Inspector
from otel_ml.diagnostics.inspection.fp8 import DelayedScales, Fp8State, format_for, fp8_state_of
from otel_ml.diagnostics.inspection.nvdlfw import InspectLogger
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]

CURRENT = "fp8_current_scaling"


def state(tensor: torch.Tensor, recipe: str = CURRENT, kind: str = "e4m3", delayed: Any = None) -> Fp8State:
    found = fp8_state_of(tensor, format=kind, recipe=recipe, delayed=delayed or DelayedScales())
    assert found is not None
    return found


@pytest.mark.feature("M28", "better", "E4M3 and E5M2 of four recipes simulated on any device, whatever training uses")
@pytest.mark.parametrize(
    ("kind", "largest", "dtype"), [("e4m3", 448.0, torch.float8_e4m3fn), ("e5m2", 57344.0, torch.float8_e5m2)]
)
def test_the_error_is_that_of_rounding_to_the_format(kind: str, largest: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values = torch.randn(64, 32)
    scale = largest / values.abs().max()
    rounded = (values * scale).to(dtype).float() / scale

    found = state(values, kind=kind)

    assert found.squared_error.item() == pytest.approx((rounded - values).square().sum().item(), rel=1e-5)
    assert found.scale_inv_min.item() == pytest.approx(1 / scale.item())
    assert found.overflows.item() == 0


def test_what_is_too_small_beside_the_largest_underflows() -> None:
    found = state(torch.tensor([1.0, 1e-7, 0.0, -1e-7]))

    assert found.underflows.item() == 2  # 0 is 0 in any format


def test_e5m2_keeps_smaller_numbers_than_e4m3() -> None:
    values = torch.tensor([1.0, 1e-7])

    assert state(values, kind="e4m3").underflows.item() == 1
    assert state(values, kind="e5m2").underflows.item() == 0


def test_a_block_of_its_own_keeps_small_numbers() -> None:
    values = torch.cat([torch.ones(32), torch.full((32,), 1e-7)])

    assert state(values).underflows.item() == 32
    assert state(values, "mxfp8").underflows.item() == 0
    assert state(values, "fp8_block_scaling").underflows.item() == 32  # both are in one block of 128


@pytest.mark.parametrize("recipe", ["mxfp8", "fp8_block_scaling"])
@pytest.mark.parametrize("shape", [(), (1,), (33,), (3, 130), (2, 3, 32)])
def test_blocks_have_scales_of_powers_of_two_and_nothing_overflows(recipe: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    found = state(torch.randn(shape) * 1000, recipe)

    assert found.overflows.item() == 0
    assert found.scale_inv_min.log2().item() == int(found.scale_inv_min.log2().item())
    assert found.count == torch.Size(shape).numel()


def test_delayed_scaling_overflows_where_a_tensor_grew() -> None:
    delayed = DelayedScales()
    assert state(torch.tensor([1.0]), "fp8_delayed_scaling", delayed=delayed).scale_inv_max.item() == 1.0
    delayed.add(torch.tensor(1.0))

    grown = state(torch.tensor([0.5, 10.0]), "fp8_delayed_scaling", delayed=delayed)

    assert grown.overflows.item() == 1
    assert grown.scale_inv_max.item() == pytest.approx(1 / 448)


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
@pytest.mark.parametrize("recipe", ["fp8_current_scaling", "mxfp8", "fp8_block_scaling"])
def test_nothing_overflows_that_is_scaled_by_its_own_maximum(kind: str, recipe: str) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(64, 64, generator=generator) * 10.0 ** (power % 9 - 5) for power in range(100)]

    found = [fp8_state_of(tensor, format=kind, recipe=recipe, delayed=DelayedScales()) for tensor in tensors]

    assert sum(one.overflows.item() for one in found if one is not None) == 0


@pytest.mark.parametrize("value", [1e-37, 1e-40])
@pytest.mark.parametrize("recipe", ["fp8_current_scaling", "fp8_delayed_scaling", "mxfp8", "fp8_block_scaling"])
def test_the_scale_of_a_tiny_tensor_is_finite(recipe: str, value: float) -> None:
    delayed = DelayedScales()
    delayed.add(torch.tensor(value))

    found = fp8_state_of(torch.full((32,), value), format="e4m3", recipe=recipe, delayed=delayed)

    assert found is not None
    assert found.overflows.item() == 0
    assert 0 < found.scale_inv_min.item() <= found.scale_inv_max.item()
    assert torch.isfinite(found.squared_error)


def test_a_tensor_of_zeros_loses_nothing() -> None:
    for recipe in (CURRENT, "mxfp8", "fp8_block_scaling"):
        found = state(torch.zeros(4, 40), recipe)
        assert (found.underflows.item(), found.overflows.item(), found.squared_error.item()) == (0, 0, 0.0)


def test_gradients_take_the_wider_range_where_the_format_is_hybrid() -> None:
    assert [format_for("hybrid", tensor) for tensor in ("weight", "activation", "gradient")] == ["e4m3", "e4m3", "e5m2"]
    assert format_for("e4m3", "gradient") == "e4m3"


@pytest.mark.feature("M28", "better", "what-if statistics of several recipes in one run, micro-batches included")
def test_recipes_are_compared_on_one_model(otel_ml_capture: Capture) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    stats = [
        "underflows%",
        "overflows%",
        "scale_inv_min",
        "scale_inv_max",
        "mse",
        "mxfp8_mse",
        "fp8_delayed_scaling_mse",
    ]
    content = {
        "fp8": {
            "enabled": True,
            "layers": {"layer_name_regex_pattern": ".*"},
            "transformer_engine": {"LogFp8TensorStats": {"stats": stats, "tensors": ["activation"], "format": "e4m3"}},
        }
    }
    inspector = Inspector(net, content)
    for _ in range(2):
        net(torch.tensor([[1.0, 1e-7, 0.0, 3.0]]))
        net(torch.tensor([[1.0, 1.0, 1.0, 1.0]]))
        inspector.step()

    points = {(point.name.rpartition("/")[2], point.step): point for point in otel_ml_capture.points}
    assert points["underflows_percent", 0].mean == pytest.approx(100 / 8)  # 1 of the 8 of both micro-batches
    assert {name for name, _ in points} == {name.replace("%", "_percent") for name in stats}
    assert points["scale_inv_max", 0].reduction == "max"


@pytest.mark.feature("M28", "yes", "a logger for nvdlfw-inspect itself, whose numeric features stay as they are")
def test_nvidias_own_tool_hands_its_values_over(otel_ml_capture: Capture, tmp_path: Any) -> None:
    from nvdlfw_inspect import api as nvdlfw

    (tmp_path / "inspect.yaml").write_text(
        "stats:\n  enabled: True\n  layers: {layer_types: [fc1]}\n"
        "  LogTensorStats: {enabled: True, stats: [max, mean], tensors: [activation], freq: 1}\n"
    )
    nvdlfw.initialize(str(tmp_path / "inspect.yaml"), statistics_logger=InspectLogger(), log_dir=str(tmp_path))
    try:
        for value in (1.0, 2.0):
            nvdlfw.log_tensor_stats(
                "fc1", tensor=torch.tensor([value, 3.0]), tensor_name="activation", skip_reduction=True
            )
            nvdlfw.step()
    finally:
        nvdlfw.end_debug()

    assert otel_ml_capture.values("inspect/fc1_activation_mean") == [2.0, 2.5]
    assert {p.reduction for p in otel_ml_capture.points if p.name.endswith("_max")} == {"max"}
