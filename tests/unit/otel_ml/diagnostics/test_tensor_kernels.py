"""Our kernels, run by Triton's interpreter on tensors in memory, against sums of 64 bits."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from array import array
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml.diagnostics.small_tensors import code_for_tensors
from otel_ml.diagnostics.tensor_statistics import layout_of
from otel_ml.diagnostics.tensor_statistics.launching import launch
from otel_ml.diagnostics.tensor_statistics.operations import by_foreach, one_by_one
from otel_ml.diagnostics.tensor_statistics.statistics import CHUNK, ROWS, _fold, _look, found_by_kernels
from otel_ml.diagnostics.tensor_statistics.tables import KINDS, Layout, Tables, _layout_in_python

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's numpy warns of what we look for

DTYPES = [getattr(torch, name) for name in KINDS]
NAN, INF = math.nan, math.inf


def tables_of(layout: Layout, addresses: bytes) -> Tables:
    tables = Tables(layout, CHUNK, ROWS, torch.device("cpu"), None)
    tables._device.copy_(tables._host)
    tables.addresses.copy_(torch.tensor(array("q", addresses).tolist()))
    return tables


def by_kernels(tensors: list[torch.Tensor]) -> list[list[float]]:
    """Return what the kernels find in each tensor."""
    seen = layout_of(tensors, "cpu")
    assert seen is not None
    return found_by_kernels(tables_of(*seen)).view(ROWS, -1).T.tolist()


def expected(tensor: torch.Tensor) -> list[float]:
    wide = tensor.detach().double()
    largest = wide.abs().max().item() if wide.numel() else 0.0
    return [wide.square().sum().item(), largest, float((wide == 0).sum())]


def assert_right(tensors: list[torch.Tensor], found: list[list[float]]) -> None:
    assert len(found) == len(tensors)
    for tensor, (square, largest, zeros) in zip(tensors, found, strict=True):
        wanted = expected(tensor)
        assert square == pytest.approx(wanted[0], rel=1e-6, abs=0, nan_ok=True)
        assert largest == wanted[1] or (math.isnan(largest) and math.isnan(wanted[1]))
        assert zeros == wanted[2]


SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-30, 1e-4, 6e4, 3e38, NAN, INF, -INF])


@st.composite
def tensors(draw: Any) -> torch.Tensor:
    """Return a part of a tensor, which begins at any address that one can."""
    dtype = draw(st.sampled_from(DTYPES))
    begin = draw(st.integers(0, 9))
    size = draw(st.sampled_from([0, 1, 7, CHUNK - 9, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 9, 2 * CHUNK]))
    torch.manual_seed(draw(st.integers(0, 9)))
    found = (torch.randn(begin + size) * draw(st.sampled_from([1e-3, 1.0, 1e3]))).to(dtype)[begin:]
    for place in range(min(size, 3)):
        found[draw(st.integers(0, size - 1))] = draw(SPECIAL) if place else 0.0
    return found


@settings(max_examples=25)
@given(st.lists(tensors(), min_size=1, max_size=4))
def test_kernels_find_what_64_bits_do(given: list[torch.Tensor]) -> None:
    assert_right(given, by_kernels(given))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_any_shape_that_has_no_gaps_are_looked_at(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    given = [
        torch.randn(()).to(dtype),
        torch.randn(0, 3).to(dtype),
        torch.randn(40, 30, 20).to(dtype).permute(2, 0, 1),
        torch.randn(2, 3, 5, 7).to(dtype).to(memory_format=torch.channels_last),
        torch.nn.Parameter(torch.randn(1, 5).to(dtype)),
    ]

    assert_right(given, by_kernels(given))


def test_tensors_that_share_memory_are_looked_at_each() -> None:
    whole = torch.randn(3 * CHUNK).to(torch.bfloat16)
    given = [whole[1:], whole[:-5], whole[CHUNK + 3 : 2 * CHUNK], whole]

    assert_right(given, by_kernels(given))


@pytest.mark.parametrize("value", [1e-30, 3e-20, 1e18, 3e37])
@pytest.mark.parametrize("size", [3, CHUNK + 5])
def test_squares_that_32_bits_cannot_hold_are_there(value: float, size: int) -> None:
    given = [torch.full((size,), value), torch.full((size,), -value, dtype=torch.bfloat16)]
    found = by_kernels(given)

    assert_right(given, found)
    assert all(0 < square < INF for square, _, _ in found)


def test_one_nan_among_many_is_seen_in_the_sum_and_in_the_largest() -> None:
    given = [torch.ones(3 * CHUNK) for _ in range(3)]
    given[1][CHUNK + 7], given[2][5] = NAN, INF
    plain, nan, inf = by_kernels(given)

    assert plain == [3 * CHUNK, 1.0, 0.0]
    assert all(map(math.isnan, nan[:2]))
    assert inf[:2] == [INF, INF]


def test_the_same_numbers_give_the_same_sum_to_the_last_bit_wherever_they_lie() -> None:
    torch.manual_seed(0)
    numbers = torch.randn(5 * CHUNK + 11)
    (first,), (second,) = by_kernels([numbers]), by_kernels([numbers.clone()])

    assert first == second


def test_zeros_are_counted_beyond_what_32_bits_of_floating_point_can() -> None:
    """Each chunk was looked at before: here they are added up."""
    size = 2**24 + 3
    tables = tables_of(Layout(0, bytes([0]), array("q", [size]).tobytes()), bytes(8))
    tables.partials.zero_()
    tables.partials.view(ROWS, -1)[2] = torch.tensor([float(CHUNK)] * (tables.chunks - 1) + [3.0])
    rows = (tables.partials, tables.begins, tables.ends, tables.found)
    launch(_fold(torch.device("cpu")), 1, *rows, tables.chunks, 1)

    assert tables.found.tolist() == [0.0, 0.0, float(size)]


def test_elements_beyond_two_to_the_31_are_where_they_are() -> None:
    """Of a tensor too large to have here only the last chunk is looked at, and only that is memory."""
    end = torch.randn(CHUNK).to(torch.float16)
    chunks = 2**16 + 1
    size = (chunks - 1) * CHUNK + 100
    begin = end.data_ptr() - (chunks - 1) * CHUNK * 2
    tables = tables_of(Layout(0, bytes([1]), array("q", [size]).tobytes()), array("q", [begin]).tobytes())
    assert tables.chunks == chunks

    read = (tables.addresses, tables.sizes, tables.owners, tables.numbers)
    launch(_look(1, torch.device("cpu")), 1, tables.likes[1], *read, tables.partials, chunks - 1, chunks)

    assert size > 2**31
    assert_right([end[:100]], [tables.partials.view(ROWS, -1)[:, -1].tolist()])


@pytest.mark.parametrize("compute", [by_foreach, one_by_one])
def test_operations_of_torch_find_the_same(compute: Any) -> None:
    torch.manual_seed(0)
    given = [torch.randn(70), torch.zeros(0), torch.tensor([0.0, NAN]), torch.tensor([INF, 1.0]), torch.tensor(-3.0)]
    given += [tensor.to(torch.bfloat16) for tensor in given]
    given.append(torch.nn.Parameter(torch.randn(3, 4)))
    found = compute(given)

    assert not found.requires_grad
    assert_right(given, found.T.tolist())


@given(st.lists(tensors(), min_size=1, max_size=5), st.sampled_from([None, -1, 0]))
def test_compiled_code_sees_what_python_sees(given: list[torch.Tensor], turned: int | None) -> None:
    if turned is not None:
        given[turned] = given[turned][: given[turned].numel() // 6 * 6].view(2, 3, -1).permute(2, 0, 1)
    code = code_for_tensors()
    seen = _layout_in_python(given, "cpu")

    assert seen is not None
    assert code is None or code.layout(given, 1) == (*seen[0], seen[1])


def test_a_tensor_that_kernels_cannot_look_at_is_known() -> None:
    plain = torch.ones(4, 4)
    others = [
        plain[:, :2],
        plain[:1].expand(4, 4),
        plain.to(torch.int32),
        plain.to(torch.complex64),
        plain.to_sparse(),
        plain.to(torch.float8_e4m3fn),
        plain.to("meta"),
        torch.nn.Buffer(plain.as_subclass(type("Other", (torch.Tensor,), {}))),
    ]

    assert layout_of([plain], "cpu") is not None
    assert [layout_of([plain, other], "cpu") for other in others] == [None] * len(others)
    assert layout_of([plain]) is None


COMPILED = """
import re, torch
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from otel_ml.diagnostics.tensor_statistics.statistics import recipes

tables = {torch.int64: "*i64", torch.float64: "*fp64", torch.float32: "*fp32"}
tables |= {torch.bfloat16: "*bf16", torch.float16: "*fp16"}
for name, made in recipes(bytes(range(4)), torch.device("cpu")):
    kernel, given, options = made()
    compiler = {option: options.pop(option) for option in ("num_warps", "enable_fp_fusion")}
    types = [tables.get(argument, "i32") for argument in given] + ["constexpr"] * len(options)
    constants = {(kernel.arg_names.index(constant),): value for constant, value in options.items()}
    source = ASTSource(kernel, dict(zip(kernel.arg_names, types)), constants)
    code = compile(source, target=GPUTarget("cuda", 90, 32), options=compiler).asm["ptx"]
    print(name, len(re.findall(r"ld\\.global\\.(?:v4\\.b32|v2\\.b64)", code)), sep=": ")
"""


def test_compiled_for_a_card_kernels_load_16_bytes_a_thread_at_a_time() -> None:
    """Triton says nothing where it does not: it is then some times slower."""
    environ = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=environ, capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stderr
    assert dict(line.split(": ") for line in done.stdout.splitlines()) == {
        "fold": "0",
        **{f"look at {kind}": "4" for kind in KINDS},
    }
