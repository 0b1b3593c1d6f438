"""Statistics of the tensors of one device, step after step: by kernels where there are some, else by operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any

from otel_ml._internal.devices.cuda_thread import CAPTURING
from otel_ml.diagnostics.tensor_statistics.copy_to_host import Block, Blocks, CopyToHost, arrival_of
from otel_ml.diagnostics.tensor_statistics.kernel_compilation import (
    Recipe,
    Recipes,
    are_compiled,
    compile_now,
    launch,
    warps,
)
from otel_ml.diagnostics.tensor_statistics.operations import by_foreach, one_by_one
from otel_ml.diagnostics.tensor_statistics.tensor_tables import KINDS, Layout, Tables, layout_of

__all__ = ["ROWS", "TensorStatistics", "found_by_kernels", "prepare"]

ROWS = 3
"""Of each tensor: the sum of squares, the largest magnitude (NaN where any element is), and how many are 0."""

CHUNK = 32_768
"""Elements that one program looks at: see `kernels`."""

_THREADS = 256
_BYTES = 16
"""That a thread loads at once."""

_LOADS = 4
"""That it has on the way."""

_FOLDED = 512
"""Chunks of a tensor that are added up at once."""


class TensorStatistics:
    """What is kept between two steps: tables on the device, and pinned memory."""

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._tables: Tables | None = None
        self._too_large: Layout | None = None

    def of(
        self, tensors: list[Any], others: Sequence[Any] = (), seen: tuple[Layout, bytes] | None = None
    ) -> CopyToHost:
        """Begin to compute the statistics of tensors of one device, as they are now; nothing waits.

        Args:
            tensors: those that `tables.is_plain()` is true of.
            others: any other, which cost some operations each.
            seen: `layout_of(tensors)`, where the caller knows it.

        Returns:
            `ROWS` rows of as many numbers as there are tensors, those of `others` behind.

        Raises:
            RuntimeError: a CUDA graph is being captured, the device is far behind, or has no memory left.
        """
        import torch

        device = (tensors or others)[0].device
        if device.type != "cuda":
            return arrival_of(one_by_one([*tensors, *others]), self._blocks)
        with torch.cuda.device(device):
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError(CAPTURING)
            found, used = self._found(tensors, seen or layout_of(tensors), device) if tensors else (None, [])
            if others:
                rest = one_by_one([*others])
                # As columns behind the others: rows are statistics, and both have as many.
                found = rest if found is None else torch.cat([found.view(ROWS, -1), rest], dim=1)
            return arrival_of(found, self._blocks, tuple(used))

    def _found(self, tensors: list[Any], seen: tuple[Layout, bytes] | None, device: Any) -> tuple[Any, list[Block]]:
        tables = None if seen is None else self._tables_of(seen[0], device)
        if tables is None or seen is None:
            # Also while another thread compiles the kernels.
            return by_foreach(tensors), []
        block = tables.send(seen[1], self._blocks)
        return found_by_kernels(tables), [] if block is None else [block]

    def _tables_of(self, layout: Layout, device: Any) -> Tables | None:
        """Return the tables, None until the kernels for them are compiled."""
        import torch

        stream = torch.cuda.current_stream(device)
        tables = self._tables
        # On another stream the tables may still be written by the one before.
        if tables is not None and tables.layout == layout and tables.stream == stream:
            return tables
        if not are_compiled(device, recipes(layout.kinds, device)):
            return None
        if layout == self._too_large:  # to ask again would have torch give back what training will want
            raise RuntimeError("there was no memory for the tables of these tensors")
        try:
            self._tables = Tables(layout, CHUNK, ROWS, device, stream)
        except torch.cuda.OutOfMemoryError:
            self._too_large = layout
            raise
        return self._tables


def prepare(tensors: Iterable[Any]) -> None:
    """Compile the kernels for tensors of CUDA while a program sets up; it may take seconds."""
    kinds: dict[Any, set[int]] = {}
    for tensor in tensors:
        kind = str(tensor.dtype).removeprefix("torch.")
        if tensor.device.type == "cuda" and kind in KINDS:
            kinds.setdefault(tensor.device, set()).add(KINDS.index(kind))
    for device, found in kinds.items():
        compile_now(device, recipes(bytes(sorted(found)), device))


def found_by_kernels(tables: Tables) -> Any:
    """Look at all chunks, and return the rows of their tensors; nothing waits."""
    device = tables.device
    for kind, first, chunks in tables.launches:
        read = (tables.addresses, tables.sizes, tables.owners, tables.numbers)
        launch(_look(kind, device), chunks, tables.likes[kind], *read, tables.partials, first, tables.chunks)
    rows = (tables.partials, tables.begins, tables.ends, tables.found)
    launch(_fold(device), tables.tensors, *rows, tables.chunks, tables.tensors)
    return tables.found


def recipes(kinds: bytes, device: Any) -> Recipes:
    """Return what has to be compiled for tensors of these kinds."""
    return _recipes(frozenset(kinds), device)


@cache
def _recipes(kinds: frozenset[int], device: Any) -> Recipes:
    looks = [(f"look at {KINDS[kind]}", partial(_look, kind, device)) for kind in sorted(kinds)]
    return [("fold", partial(_fold, device)), *looks]


@cache
def _look(kind: int, device: Any) -> Recipe:
    import torch
    import triton.language as tl

    from otel_ml.diagnostics.tensor_statistics import kernels

    element = getattr(torch, KINDS[kind])
    item = element.itemsize
    constants = {
        "ITEM": item,
        "WIDE": tl.float64 if element is torch.float64 else tl.float32,
        # Each thread loads 16 bytes, which are 8 elements of bfloat16 and 2 of float64.
        "COLUMNS": _THREADS * _BYTES // item,
        "LOADS": _LOADS,
        "CHUNK": CHUNK,
    }
    tables = (torch.int64,) * 4
    return Recipe(kernels.look, (element, *tables, torch.float64, 2, 2), {**constants, **warps(_THREADS, device)})


@cache
def _fold(device: Any) -> Recipe:
    import torch

    from otel_ml.diagnostics.tensor_statistics import kernels

    tables = (torch.float64, torch.int64, torch.int64, torch.float64)
    return Recipe(kernels.fold, (*tables, 2, 2), {"BLOCK": _FOLDED, **warps(_FOLDED // 4, device)})
