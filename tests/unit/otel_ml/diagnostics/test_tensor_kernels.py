"""Our kernels, run by Triton's interpreter on tensors in memory, against sums of 64 bits."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml.diagnostics.small_tensors import code_for_tensors
from otel_ml.diagnostics.tensor_statistics import layout_of
from otel_ml.diagnostics.tensor_statistics.kernel_compilation import Recipe, launch
from otel_ml.diagnostics.tensor_statistics.operations import by_foreach, one_by_one
from otel_ml.diagnostics.tensor_statistics.statistics import CHUNK, ROWS, _fold, _look, found_by_kernels
from otel_ml.diagnostics.tensor_statistics.tensor_tables import KINDS, LOWEST, Layout, Tables, _layout_in_python

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
    assert code is None or code.layout(given, 1, 0) == (*seen[0], seen[1])


def freed() -> torch.Tensor:
    """Return what FSDP1 leaves of a weight: torch says where it was, and refuses to look there."""
    flat = torch.ones(20)
    view = flat[12:].view(2, 4)
    flat.untyped_storage().resize_(0)
    return view


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
        freed(),
        torch.nn.Buffer(plain.as_subclass(type("Other", (torch.Tensor,), {}))),
    ]

    assert layout_of([plain], "cpu") is not None
    assert [_layout_in_python([plain, other], "cpu") for other in others] == [None] * len(others)
    code, without_memory = code_for_tensors(), others.pop(-2)
    assert code is None or code.layout([without_memory], 1, LOWEST) is None
    assert [layout_of([plain, other], "cpu") for other in others] == [None] * len(others)
    assert layout_of([plain]) is None


COMPILED = """
import re, torch
from types import SimpleNamespace
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from otel_ml.diagnostics.inspection.fp8 import fp8_job_for
from otel_ml.diagnostics.inspection.nvfp4 import NVFP4_JOB
from otel_ml.diagnostics.tensor_statistics import kernel_compilation
from otel_ml.diagnostics.tensor_statistics.kernel_jobs import SUMMARY, needs
from otel_ml.diagnostics.tensor_statistics.statistics import recipes

launched, loaded, card = [], [], torch.device("cpu")
driver.set_active(SimpleNamespace(
    get_current_target=lambda: GPUTarget("cuda", 90, 32),
    get_current_device=lambda: 0,
    get_current_stream=lambda _: 0,
    launcher_cls=lambda *_: lambda *given: launched.append(given),
    utils=SimpleNamespace(
        get_device_properties=lambda _: {"max_shared_mem": 2**17},
        load_binary=lambda name, *_: loaded.append(name) or (1, 1, 0, 0, 1024),
        unload_module=lambda _: None,
    ),
))
formats = [fp8_job_for(recipe, "e4m3") for recipe in ("fp8_current_scaling", "mxfp8", "fp8_block_scaling")]
jobs = needs([SUMMARY, *formats, NVFP4_JOB], 0, card)
for name, made in [*recipes(bytes(range(4)), card), *jobs]:
    recipe = made()
    kernel_compilation._compile(recipe)
    kernel, before = recipe.compiled, [*loaded]
    launched.clear()
    given = [torch.zeros(64).view(one) if isinstance(one, torch.dtype) else one for one in recipe.arguments]
    given = [one if isinstance(one, torch.Tensor) else {int: 2**20, float: 448.0}[type(one)] for one in given]
    kernel_compilation.launch(recipe, 77, *given)
    recipe.kernel[(77,)](*given, **recipe.options)
    ours, tritons = ([id(one) if isinstance(one, torch.Tensor) else one for one in each] for each in launched)
    metadata = 6  # an object of its own each time
    del ours[metadata], tritons[metadata]
    loads = len(re.findall(r"ld\\.global\\.(?:v4\\.b32|v2\\.b64)", kernel.asm["ptx"]))
    is_ours = recipe.compiled is kernel and ours == tritons
    print(name, loads, is_ours, loaded == before and bool(loaded), sep=": ")
"""


def test_compiled_for_a_card_kernels_load_16_bytes_a_thread_and_are_launched_as_triton_does(tmp_path: Path) -> None:
    """Triton says nothing where its loads are narrow: it is then some times slower.

    No launch loads anything: that takes milliseconds, and with an older Triton the C compiler.
    """
    environ = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], env=environ, capture_output=True, text=True, timeout=200, check=False
    )

    assert done.returncode == 0, done.stderr
    found = [line.split(": ") for line in done.stdout.splitlines()]
    wide = {"fold": 0, **{f"look at {kind}": 4 for kind in KINDS}, "fold of jobs": 0}
    wide |= {f"{name} of bfloat16": loads for name, loads in (("summarize ", 4), ("round_whole ", 4))}
    wide |= {f"{name} of bfloat16": 2 for name in ("round_blocks 32", "round_blocks 128", "round_fours ")}
    assert found == [[name, str(loads), "True", "True"] for name, loads in wide.items()]


def test_where_a_compiled_kernel_is_launched_in_another_way_triton_launches_it() -> None:
    launched: list[Any] = []

    class Kernel:
        arg_names = ("numbers", "first", "BLOCK")

        def __getitem__(self, grid: Any) -> Any:
            return lambda *given, **options: launched.append((grid, given, options))

    recipe = Recipe(Kernel(), (torch.int64, 2), {"BLOCK": 4, "num_warps": 1}, compiled={})
    numbers = torch.zeros(2, dtype=torch.int64)
    launch(recipe, 3, numbers, 1)

    assert launched == [((3,), (numbers, 1), recipe.options)]


ENDS = """
import threading, torch
from tests.fake_cuda import fake_cuda
from otel_ml.diagnostics.tensor_statistics import kernel_compilation

begun = threading.Event()

class Kernel:
    arg_names = ()
    def warmup(self, *_, **__):
        print("begins", flush=True)
        begun.set()
        threading.main_thread().join()
        print("ends", flush=True)

card = fake_cuda()
card.__enter__()
kernels = [(name, lambda: kernel_compilation.Recipe(Kernel(), (), {})) for name in "ab"]
kernel_compilation.are_compiled(torch.device("cuda", 0), kernels)
begun.wait()
"""


def test_a_program_that_ends_while_a_kernel_is_compiled_waits_for_that_one() -> None:
    """Else C++ of Triton comes back to a Python that is gone, and aborts."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=100, check=False)

    assert (done.returncode, done.stdout.split()) == (0, ["begins", "ends"]), done.stderr
