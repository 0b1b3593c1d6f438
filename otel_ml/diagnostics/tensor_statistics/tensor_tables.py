"""What kernels read of many tensors: where each begins and which part of it a program looks at; nothing waits.

What changes from step to step are addresses alone. They go to the device in one copy, and only where one has changed;
the rest is made anew where a tensor comes, goes, or has another size or type.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

from otel_ml.diagnostics.small_tensors import code_for_tensors
from otel_ml.diagnostics.tensor_statistics.copy_to_host import Block, Blocks

__all__ = ["KINDS", "LOWEST", "Launch", "Layout", "Tables", "is_freed", "is_plain", "kinds_by_type", "layout_of"]

KINDS = ("bfloat16", "float16", "float32", "float64")
"""Types that kernels look at, as torch names them."""

LOWEST = 2**32
"""Address below which no device has memory. A view of what was given back (see `is_freed()`) still says how far from
its beginning it was, and nothing else that compiled code sees of it tells."""

_PAIR = 2
"""Words to which each table is rounded up: a kernel is compiled anew for an address that is not a multiple of 16."""


class Layout(NamedTuple):
    """What need not be looked at anew where it is the same.

    Attributes:
        device: number of the device of all.
        kinds: of each tensor, its place in `KINDS`.
        sizes: elements of each.
    """

    device: int
    kinds: bytes
    sizes: bytes


class Launch(NamedTuple):
    """Chunks that one launch looks at, since all are of one type.

    Attributes:
        kind: of `KINDS`.
        first: chunk.
        chunks: how many there are.
    """

    kind: int
    first: int
    chunks: int


def layout_of(tensors: list[Any], on: str = "cuda") -> tuple[Layout, bytes] | None:
    """Return what the tensors are and where they begin; None where one is not plain, or on another device."""
    code = code_for_tensors()
    found = None if code is None else code.layout(tensors, _of_dlpack(on), 0 if on == "cpu" else LOWEST)
    return _layout_in_python(tensors, on) if found is None else (Layout(*found[:3]), found[3])


def _layout_in_python(tensors: list[Any], on: str) -> tuple[Layout, bytes] | None:
    """Do as the compiled code does; attribute by attribute, which takes half the time of tensor by tensor."""
    if (
        not {*map(type, tensors)}.issubset(plain_types())
        or not {tensor.dtype for tensor in tensors} <= kinds_by_type().keys()
    ):
        return None
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1 or not all(_is_there(tensor, on) for tensor in tensors):
        return None
    kinds = bytes([kinds_by_type()[tensor.dtype] for tensor in tensors])
    sizes = array("q", [tensor.numel() for tensor in tensors]).tobytes()
    addresses = array("q", [tensor.data_ptr() for tensor in tensors]).tobytes()
    return Layout(devices.pop().index or 0, kinds, sizes), addresses


def is_plain(tensor: Any, on: str = "cuda") -> bool:
    """Return whether kernels can look at a tensor: of 16 to 64 bits of floating point, without gaps.

    A subclass may keep its elements elsewhere, and one that is computed lazily has none yet.
    """
    return type(tensor) in plain_types() and tensor.dtype in kinds_by_type() and _is_there(tensor, on)


def _is_there(tensor: Any, on: str) -> bool:
    is_there = tensor.device.type == on and tensor.layout is _strided()
    return is_there and (tensor.is_contiguous() or _is_dense(tensor)) and not is_freed(tensor)


def is_freed(tensor: Any) -> bool:
    """Return whether the memory of a tensor was given back, while the tensor still says where it was.

    A view keeps its place in what is no more: to read there ends the process, on a device as on the host. FSDP1 leaves
    such views as the weights of a model whose parameters it has flattened (`use_orig_params=False`, its default).
    """
    if type(tensor) not in plain_types() or tensor.layout is not _strided() or not tensor.numel():
        return False
    return not tensor.untyped_storage().nbytes()


@cache
def plain_types() -> tuple[type, ...]:
    """Return the types of tensors whose elements are where they say."""
    import torch

    return torch.Tensor, torch.nn.Parameter


@cache
def _strided() -> Any:
    import torch

    return torch.strided


@cache
def _of_dlpack(device: str) -> int:
    import torch

    return 1 if device == "cpu" else 10 if torch.version.hip else 2


def _is_dense(tensor: Any) -> bool:
    """Return whether elements lie without gaps and each once, in whatever order."""
    expected = 1
    # From the innermost dimension out: each stride is the product of the sizes inside of it.
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        # The stride of a dimension of one element is never stepped by, and may be anything.
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


@cache
def kinds_by_type() -> dict[Any, int]:
    """Return the place in `KINDS` of each of torch's types that is there."""
    import torch

    return {getattr(torch, name): code for code, name in enumerate(KINDS)}


class Tables:
    """The tables of one list of tensors, as they lie on the device, and room for what is found there.

    Used on one stream alone: what is written comes after what was read before.

    Attributes:
        layout: of the tensors.
        device: of all.
        stream: on which the device works at them.
        tensors: how many there are.
        chunks: of all tensors.
        launches: as many as there are types.
        likes: by kind, something of its type.
        addresses: of each tensor.
        sizes: elements of each.
        begins: the first chunk of each.
        ends: the chunk after its last one.
        owners: of each chunk, the tensor it is of.
        numbers: of each chunk, which of that tensor's it is.
        partials: rows of numbers of each chunk.
        found: rows of numbers of each tensor.
    """

    layout: Layout
    device: Any
    stream: object
    addresses: Any
    sizes: Any
    begins: Any
    ends: Any
    owners: Any
    numbers: Any
    tensors: int
    chunks: int

    def __init__(self, layout: Layout, chunk: int, rows: int, device: Any, stream: object) -> None:
        import torch

        self.layout, self.device, self.stream = layout, device, stream
        with torch.inference_mode(mode=False), torch.device("cpu"):
            columns = self._columns(chunk)
            self._host = torch.cat([_rounded(column) for column in columns])
            self._device = torch.empty(len(self._host), dtype=torch.int64, device=device)
            self.partials: Any = torch.empty(rows * self.chunks, dtype=torch.float64, device=device)
            self.found: Any = torch.empty(rows * self.tensors, dtype=torch.float64, device=device)
            # The kernel only takes the type of a pointer from it, and reads none of its elements.
            self.likes: dict[int, Any] = {code: self._device.view(kind) for kind, code in kinds_by_type().items()}
        places = accumulate((_words(len(column)) for column in columns), initial=0)
        self.addresses, self.sizes, self.begins, self.ends, self.owners, self.numbers = (
            self._device[place : place + len(column)] for place, column in zip(places, columns, strict=False)
        )
        self._sent: bytes | None = None

    def _columns(self, chunk: int) -> list[Any]:
        import torch

        kinds, sizes = self.layout.kinds, torch.tensor(array("q", self.layout.sizes).tolist(), dtype=torch.int64)
        counts = (sizes + chunk - 1) // chunk
        # Chunks are numbered type by type, since one launch looks at those of one.
        order = torch.tensor(sorted(range(len(kinds)), key=kinds.__getitem__))  # those of a type together
        ends = torch.empty_like(counts)
        ends[order] = counts[order].cumsum(0)
        begins = ends - counts
        owners = torch.repeat_interleave(order, counts[order])
        self.tensors, self.chunks = len(kinds), len(owners)
        self.launches: tuple[Launch, ...] = tuple(_launches(kinds, counts.tolist()))
        # Four by tensor, two by chunk; `send()` writes the addresses over the first.
        return [torch.zeros_like(sizes), sizes, begins, ends, owners, torch.arange(len(owners)) - begins[owners]]

    def send(self, addresses: bytes, blocks: Blocks) -> Block | None:
        """Begin to copy addresses to the device if they have changed; return what the copy is made from."""
        if addresses == self._sent:
            return None
        # Addresses stand first: after the first time they are sent alone.
        target = self._device if self._sent is None else self.addresses
        block = blocks.take(len(target))
        if self._sent is None:
            # The first time all tables go, addresses among them as zeros, which the next line writes over.
            block.words[: len(target)].copy_(self._host)
        ctypes.memmove(block.address, addresses, len(addresses))
        target.copy_(block.words[: len(target)], non_blocking=True)
        self._sent = addresses
        return block


def _launches(kinds: bytes, counts: list[int]) -> Iterator[Launch]:
    first = 0
    for kind in sorted({*kinds}):
        chunks = sum(count for other, count in zip(kinds, counts, strict=True) if other == kind)
        if chunks:
            yield Launch(kind, first, chunks)
        first += chunks


def _words(length: int) -> int:
    return -(-length // _PAIR) * _PAIR


def _rounded(table: Any) -> Any:
    import torch

    return torch.nn.functional.pad(table, (0, _words(len(table)) - len(table)))
