"""What kernels read of many tensors: where each begins and which part of it a program looks at; nothing waits.

What changes from step to step are addresses alone. They go to the device in one copy, and only where one has changed;
the rest is made anew where a tensor comes, goes, or has another size or type.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from otel_ml.diagnostics.tensor_statistics.arrival import Block, Blocks

__all__ = ["KINDS", "Launch", "Layout", "Tables", "layout_of"]

KINDS = ("bfloat16", "float16", "float32", "float64")
"""Types that kernels look at, as torch names them."""

_PAIR = 2
"""Words to which each table is rounded up: a kernel is compiled anew for a table whose address is no multiple of 16."""


class Layout(NamedTuple):
    """What need not be looked at anew where it is the same.

    Attributes:
        kinds: of each tensor, its place in `KINDS`.
        sizes: elements of each.
    """

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


def layout_of(tensors: Sequence[Any]) -> tuple[Layout, bytes] | None:
    """Return what the tensors of one device are, and where they begin; None where kernels cannot look at all of them.

    Those they can look at are plain ones of floating point, of 16 to 64 bits, without gaps. Nothing waits.
    """
    import torch

    codes = _codes()
    kinds, sizes, addresses = bytearray(), array("q"), array("q")
    device = tensors[0].device if tensors else None
    for tensor in tensors:
        kind = codes.get(tensor.dtype)
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
        if kind is None or not is_plain or tensor.device != device or not is_dense(tensor):
            return None
        kinds.append(kind)
        sizes.append(tensor.numel())
        addresses.append(tensor.data_ptr())
    return Layout(bytes(kinds), sizes.tobytes()), addresses.tobytes()


def is_dense(tensor: Any) -> bool:
    """Return whether elements lie without gaps and each once, in whatever order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _codes() -> dict[Any, int]:
    import torch

    return {getattr(torch, name): code for code, name in enumerate(KINDS)}


class Tables:
    """The tables of one list of tensors, as they lie on the device, and room for what is found.

    Used on one stream alone: what is written there comes after what was read before.

    Attributes:
        layout: of the tensors.
        stream: on which the device works at them.
        launches: as many as there are types.
        chunks: of all tensors.
        addresses: of each tensor.
        sizes: elements of each.
        begins: the first chunk of each.
        ends: the chunk after its last one.
        owners: of each chunk, the tensor it is of.
        numbers: of each chunk, which of that tensor's it is.
    """

    def __init__(self, layout: Layout, chunk: int, device: Any, stream: object) -> None:
        import torch

        self.layout = layout
        self.stream = stream
        sizes = array("q", layout.sizes)
        self.tensors = len(sizes)
        counts = [-(-size // chunk) for size in sizes]
        order = sorted(range(self.tensors), key=layout.kinds.__getitem__)
        ends = dict(zip(order, accumulate(counts[place] for place in order), strict=True))
        self.chunks = sum(counts)
        self.launches = _launches(layout.kinds, counts)
        ordered = torch.tensor([counts[place] for place in order], dtype=torch.int64)
        owners = torch.repeat_interleave(torch.tensor(order, dtype=torch.int64), ordered)
        before = torch.tensor([ends[place] - counts[place] for place in range(self.tensors)], dtype=torch.int64)
        numbers = torch.arange(self.chunks, dtype=torch.int64) - before[owners]
        after = torch.tensor([ends[place] for place in range(self.tensors)], dtype=torch.int64)
        lengths = torch.tensor(sizes.tolist(), dtype=torch.int64)
        every = [torch.zeros_like(lengths), lengths, before, after, owners, numbers]
        self._host = torch.cat([_rounded(table) for table in every])
        self._device = torch.empty(len(self._host), dtype=torch.int64, device=device)
        places = [0, *accumulate(_words(len(table)) for table in every)]
        self.addresses, self.sizes, self.begins, self.ends, self.owners, self.numbers = (
            self._device[place : place + len(table)] for place, table in zip(places, every, strict=False)
        )
        self._sent: bytes | None = None

    def send(self, addresses: bytes, blocks: Blocks) -> Block | None:
        """Begin to copy addresses to the device if they have changed; return what the copy is made from."""
        if addresses == self._sent:
            return None
        if self._sent is None:
            block = blocks.take(len(self._host))
            block.words[: len(self._host)].copy_(self._host)
            target = self._device
        else:
            block = blocks.take(self.tensors)
            target = self.addresses
        ctypes.memmove(block.address, addresses, len(addresses))
        target.copy_(block.words[: len(target)], non_blocking=True)
        self._sent = addresses
        return block


def _launches(kinds: bytes, counts: list[int]) -> tuple[Launch, ...]:
    found, first = [], 0
    for kind in sorted(set(kinds)):
        chunks = sum(count for other, count in zip(kinds, counts, strict=True) if other == kind)
        if chunks:
            found.append(Launch(kind, first, chunks))
        first += chunks
    return tuple(found)


def _words(length: int) -> int:
    return -(-length // _PAIR) * _PAIR


def _rounded(table: Any) -> Any:
    import torch

    return torch.nn.functional.pad(table, (0, _words(len(table)) - len(table)))
