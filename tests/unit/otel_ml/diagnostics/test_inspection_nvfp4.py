"""What NVFP4 would make of a tensor, and how far blocks reach: held against plain Python that knows the formats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from otel_ml.diagnostics.inspection import Inspector
from otel_ml.diagnostics.inspection.blocks import BlockRange
from otel_ml.diagnostics.inspection.nvfp4 import nvfp4_state_of
from otel_ml.exceptions import ConfigError
from otel_ml.testing import Capture, otel_ml_capture

__all__ = ["otel_ml_capture"]


def numbers(exponent_bits: int, mantissa_bits: int, bias: int) -> list[float]:
    """Return the non-negative finite numbers of a small format, by their bits; E4M3 keeps its last one for NaN."""
    found = []
    for code in range(2 ** (exponent_bits + mantissa_bits)):
        exponent, mantissa = code >> mantissa_bits, code & (2**mantissa_bits - 1)
        share = mantissa / 2**mantissa_bits
        found.append(2.0 ** (1 - bias) * share if exponent == 0 else 2.0 ** (exponent - bias) * (1 + share))
    return found[:-1] if exponent_bits == 4 else found


E2M1, E4M3 = numbers(2, 1, 1), numbers(4, 3, 7)


def nearest(value: float, known: Sequence[float]) -> float:
    """Return the nearest number, of two the one whose code is even; what is larger than all becomes the largest."""
    best = min(range(len(known)), key=lambda code: (abs(known[code] - abs(value)), code % 2))
    return math.copysign(known[best], value)


def blocks_of(row: Sequence[float]) -> Iterator[Sequence[float]]:
    for start in range(0, len(row), 16):
        yield row[start : start + 16]


def by_hand(rows: Sequence[Sequence[float]]) -> tuple[int, float]:
    """Return how many elements become 0, and the sum of squared errors."""
    amax = max(abs(value) for row in rows for value in row)
    of_tensor = 6.0 * 448.0 / amax
    underflows, lost = 0, 0.0
    for block in (block for row in rows for block in blocks_of(row)):
        stored = nearest(max(abs(value) for value in block) / 6.0 * of_tensor, E4M3)
        for value in block:
            found = nearest(value * of_tensor / stored, E2M1) if stored else 0.0
            underflows += found == 0 and value != 0
            lost += (found * stored / of_tensor - value) ** 2
    return underflows, lost


def test_the_formats_of_the_oracle_are_those_of_their_definitions() -> None:
    assert E2M1 == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert (E4M3[1], E4M3[-1], len(E4M3)) == (2.0**-9, 448.0, 127)


@pytest.mark.feature("M28", "better", "NVFP4 simulated on any device, beside FP8, whatever training uses")
@pytest.mark.parametrize("shape", [(1, 1), (1, 16), (3, 17), (4, 40), (2, 128)])
def test_the_error_is_that_of_the_format_computed_by_hand(shape: tuple[int, int]) -> None:
    torch.manual_seed(sum(shape))
    values = torch.randn(shape) * 10 ** torch.empty(shape).uniform_(-5, 1)

    found = nvfp4_state_of(values)

    assert found is not None
    underflows, lost = by_hand(values.tolist())
    assert int(found.underflows) == underflows
    assert float(found.squared_error) == pytest.approx(lost, rel=1e-4, abs=1e-12)
    assert found.count == values.numel()


def test_ties_go_to_the_even_mantissa_in_every_binade() -> None:
    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]

    found = nvfp4_state_of(torch.tensor([6.0, *ties]))

    assert found is not None
    rounded = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert float(found.squared_error) == sum((a - b) ** 2 for a, b in zip(ties, rounded, strict=True))


def test_a_block_too_small_beside_the_tensor_is_lost_and_counted() -> None:
    values = torch.cat([torch.full((16,), 1.0), torch.full((16,), 1e-7), torch.zeros(16)])

    found = nvfp4_state_of(values)

    assert found is not None
    assert int(found.underflows) == 16
    assert float(found.scale_inv_max) == pytest.approx(1 / 6)


def test_nothing_and_zeros_are_no_mistake() -> None:
    zeros = nvfp4_state_of(torch.zeros(3, 20))

    assert nvfp4_state_of(torch.zeros(0, 4)) is None
    assert zeros is not None
    assert (int(zeros.underflows), int(zeros.overflows), float(zeros.squared_error)) == (0, 0, 0.0)
    assert float(zeros.scale_inv_min) == 0.0


def range_by_hand(values: torch.Tensor, height: int, width: int) -> float:
    found = []
    for top in range(0, values.shape[0], height):
        for left in range(0, values.shape[1], width):
            block = values[top : top + height, left : left + width].flatten().tolist()
            sizes = [abs(value) for value in block if value != 0]
            found.append(math.log2(max(sizes)) - math.log2(min(sizes)) if sizes else -math.inf)
    return max(found)


@pytest.mark.feature("M27", "yes", "max_blockwise_dynamic_range with block_size and dims, as the original names it")
@pytest.mark.parametrize("shape", [(1, 1), (32, 32), (33, 50), (7, 64)])
@pytest.mark.parametrize("size", [1, 8, 32])
def test_the_range_of_blocks_is_that_of_each_block_looked_at_alone(shape: tuple[int, int], size: int) -> None:
    torch.manual_seed(size)
    values = torch.randn(shape) * 10 ** torch.empty(shape).uniform_(-4, 4)
    values[0, 0] = 0.0

    along, across = range_by_hand(values, 1, size), range_by_hand(values, size, 1)

    assert float(BlockRange(size, 1).of(values, "output")) == pytest.approx(along, abs=1e-4)
    assert float(BlockRange(size, 1).of(values, "weight")) == pytest.approx(max(along, across), abs=1e-4)
    assert float(BlockRange(size, 2).of(values, "weight")) == pytest.approx(range_by_hand(values, size, size), abs=1e-4)


def config(feature: str, stats: list[Any]) -> dict[str, Any]:
    options = {"stats": stats, "tensors": ["activation"]}
    return {"section": {"layers": {"layer_name_regex_pattern": ".*"}, "transformer_engine": {feature: options}}}


def test_a_model_is_inspected_by_blocks_and_for_nvfp4_over_micro_batches(otel_ml_capture: Capture) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    blocks = ["max_blockwise_dynamic_range", {"max_blockwise_dynamic_range": {"block_size": 2, "dims": 2}}]
    content = config("LogTensorStats", blocks)
    content["section"]["transformer_engine"]["LogNvfp4TensorStats"] = {
        "stats": ["underflows%", "mse"],
        "tensors": ["activation"],
    }
    inspector = Inspector(net, content)

    net(torch.tensor([[6.0, 1.0, 0.25, 0.25]]))
    net(torch.tensor([[6.0, 6.0, 6.0, 6.0]]))
    inspector.step()
    inspector.close()

    points = {point.name.rpartition("/")[2]: point for point in otel_ml_capture.points}
    assert points["nvfp4_underflows_percent"].mean == pytest.approx(100 * 2 / 8)
    assert points["nvfp4_mse"].mean == pytest.approx(2 * 0.25**2 / 8)
    assert points["max_blockwise_dynamic_range"].max == pytest.approx(math.log2(24))
    assert points["max_blockwise_dynamic_range_block_size_2_dims_2"].max == pytest.approx(math.log2(6))
    assert points["max_blockwise_dynamic_range"].reduction == "max"


@pytest.mark.parametrize(
    ("feature", "stat", "said"),
    [
        ("LogTensorStats", {"max_blockwise_dynamic_range": {"block_size": 0}}, "expected a name, or"),
        ("LogTensorStats", {"max_blockwise_dynamic_range": {"dims": 3}}, "dims: 1 or 2"),
        ("LogTensorStats", {"max_blockwise_dynamic_range": {"size": 3}}, "expected a name, or"),
        ("LogTensorStats", {"mean": {}}, "expected a name, or"),
        ("LogTensorStats", "max_blockwise_dynamic_rang", "Did you mean 'max_blockwise_dynamic_range'"),
        ("LogNvfp4TensorStats", "underflow%", "Did you mean 'underflows%'"),
        ("LogNvfp4TensorStats", "max_blockwise_dynamic_range", "unknown statistic"),
    ],
)
def test_what_cannot_be_measured_is_an_error_at_the_start(feature: str, stat: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        Inspector(torch.nn.Sequential(torch.nn.Linear(2, 2)), config(feature, [stat]))

    assert said in str(error.value)
