"""What compiled code finds in small tensors is what NumPy finds, and what it does not know it leaves alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from otel_ml.diagnostics.dynamics import host_norms
from otel_ml.diagnostics.rl.mean_and_range import _of_host
from otel_ml.diagnostics.small_tensors import (
    MOST_OF_EXTENT,
    MOST_OF_SUMS,
    extent_of_small,
    statistics_of_small,
    sums_of_small,
)

WIDTHS = {torch.float64: 64, torch.float32: 32, torch.float16: 16}
SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -1e-45, 6e-8, 1.7e308]
ROUNDING = 1e-12
"""Of sums of squares, relative: 1,000 additions of positive numbers err by less than 1,000 · 2⁻⁵³."""


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from([*WIDTHS, torch.bfloat16]))
    width = WIDTHS.get(dtype, 16)
    special = st.sampled_from([float(np.float32(value)) if width < 64 else value for value in SPECIAL[:-1]])
    numbers = st.floats(width=width) | special if width != 16 else st.floats(width=16)
    shape = draw(st.sampled_from([(), (0,), (1,), (3, 0), (1, 1), None]))
    if shape is None:
        values = draw(st.lists(numbers, min_size=1, max_size=10))
        size = draw(st.integers(len(values), 1_000))
        tensor = torch.tensor((values * size)[:size], dtype=dtype)
    else:
        tensor = torch.full(shape, draw(numbers), dtype=dtype)
    tensor.requires_grad_(draw(st.booleans()))
    return torch.nn.Parameter(tensor) if draw(st.booleans()) else tensor


def same(one: float, other: float, rel: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=rel)


@pytest.mark.filterwarnings("ignore:overflow encountered")  # NumPy says where a sum of squares is above all numbers
@given(st.lists(tensors(), max_size=5))
def test_compiled_code_finds_what_python_finds(given: list[torch.Tensor]) -> None:
    found = statistics_of_small(given)

    assert found is not None
    expected = host_norms._statistics([tensor.detach() for tensor in given])
    assert (found.sizes, found.zeros) == (expected.sizes, expected.zeros)
    assert all(same(one, other, 0.0) for one, other in zip(found.largest, expected.largest, strict=True))
    for tensor, one, other in zip(given, found.squares, expected.squares, strict=True):
        assert same(one, other, ROUNDING)
        numbers = tensor.detach().double().flatten().tolist()
        if all(abs(number) < 1e100 for number in numbers):
            assert same(one, math.fsum(number * number for number in numbers), ROUNDING)


@given(st.lists(tensors(), max_size=5), st.floats(0.01, 1.0))
def test_sums_are_those_of_what_each_tensor_has(given: list[torch.Tensor], share: float) -> None:
    sums, each = sums_of_small(given, share), statistics_of_small(given)

    assert sums is not None and each is not None  # noqa: PT018
    assert (sums.elements, sums.zeros) == (sum(each.sizes) * share, sum(each.zeros) * share)
    assert sums.bad == sum(not largest < math.inf for largest in each.largest)
    assert same(sums.square, sum(each.squares) * share, ROUNDING)
    is_nan = any(map(math.isnan, each.largest))
    assert same(sums.largest, math.nan if is_nan else max(each.largest, default=0.0), 0.0)


@given(tensors())
def test_compiled_code_finds_the_extent_that_torch_finds(given: torch.Tensor) -> None:
    found = extent_of_small(given)

    expected = _of_host(given.detach())
    if expected is None:
        assert found is None
        return
    assert found is not None
    mean, count, low, high = found
    assert count == expected.number
    if math.isnan(expected.min):
        assert all(math.isnan(number) for number in (mean, low, high))
        return
    assert (low, high) == (expected.min, expected.max)
    numbers = given.detach().double().flatten().tolist()
    if all(abs(number) < 1e300 for number in numbers):
        assert math.isclose(mean, math.fsum(numbers) / count, rel_tol=1e-9, abs_tol=1e-12 * max(map(abs, numbers)))


UNKNOWN: dict[str, Callable[[], Any]] = {
    "not contiguous": lambda: torch.ones(4, 3).T,
    "with gaps": lambda: torch.ones(10)[::2],
    "expanded": lambda: torch.ones(1).expand(5),
    "large": lambda: torch.ones(MOST_OF_SUMS + 1),
    "large in two dimensions": lambda: torch.ones(2, MOST_OF_SUMS),
    "whole": lambda: torch.ones(3, dtype=torch.int32),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
    "eight bits": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "sparse": lambda: torch.ones(3).to_sparse(),
    "without data": lambda: torch.empty(3, device="meta"),
    "given back": lambda: given_back(torch.ones(3)),
    "zeros that are nowhere": lambda: torch._efficientzerotensor(3),
    "of a type of its own": lambda: torch.ones(3).as_subclass(Own),
    "an array": lambda: np.ones(3),
    "nothing": lambda: None,
}


class Own(torch.Tensor):
    """May mean something else by its elements."""


def given_back(tensor: torch.Tensor) -> torch.Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_compiled_code_does_not_know_it_leaves_alone(name: str) -> None:
    assert statistics_of_small([torch.ones(3), UNKNOWN[name]()]) is None
    assert sums_of_small([torch.ones(3), UNKNOWN[name]()], 1.0) is None
    assert extent_of_small(UNKNOWN[name]()) is None


def test_inside_a_transformation_a_tensor_is_left_alone() -> None:
    def looked_at(tensor: torch.Tensor) -> torch.Tensor:
        assert statistics_of_small([tensor]) is None
        return tensor

    torch.func.vmap(looked_at)(torch.ones(2, 3))
    torch.func.grad(lambda tensor: looked_at(tensor).sum())(torch.ones(3))


@given(st.lists(tensors(), min_size=1, max_size=3))
def test_a_part_of_a_tensor_is_looked_at_and_no_more(given: list[torch.Tensor]) -> None:
    whole = torch.cat([tensor.detach().double().flatten() for tensor in given])
    begin, end = whole.numel() // 3, whole.numel() // 3 * 2

    found = statistics_of_small([whole[begin:end]])

    assert found is not None
    assert found.sizes == [end - begin]
    assert found.zeros == [(whole[begin:end] == 0).sum().item()]


def test_of_a_tensor_with_more_elements_torch_finds_the_extent() -> None:
    assert extent_of_small(torch.ones(MOST_OF_EXTENT)) == (1.0, MOST_OF_EXTENT, 1.0, 1.0)
    assert extent_of_small(torch.ones(MOST_OF_EXTENT + 1)) is None


@pytest.mark.parametrize("dtype", [*WIDTHS, torch.bfloat16])
def test_numbers_of_every_place_count(dtype: torch.dtype) -> None:
    """What is left over by vectors of any width, and what is looked at while other threads go on."""
    for size in [*range(1, 40), 2**16 + 3]:
        numbers = torch.arange(size, dtype=torch.float64).remainder(63).sub(31).to(dtype)
        found, extent = statistics_of_small([numbers, numbers[1:]]), extent_of_small(numbers)
        wide = numbers.double()
        assert found is not None and extent is not None  # noqa: PT018
        assert found.squares == [wide.square().sum().item(), wide[1:].square().sum().item()]
        assert found.zeros == [int((wide == 0).sum()), int((wide[1:] == 0).sum())]
        assert found.largest[0] == wide.abs().max().item()
        assert (extent.mean, extent.min, extent.max) == (wide.sum().item() / size, wide.min().item(), wide.max().item())


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_seen_at_every_place(special: float) -> None:
    for place in range(19):
        numbers = torch.ones(19)
        numbers[place] = special
        found, extent = statistics_of_small([numbers]), extent_of_small(numbers)
        assert found is not None and extent is not None  # noqa: PT018
        assert same(found.largest[0], abs(special), 0.0)
        assert same(extent.max, special if special != -math.inf else 1.0, 0.0)
        assert same(extent.min, special if special != math.inf else 1.0, 0.0)
