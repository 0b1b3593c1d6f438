"""Numbers on their way from a device into pinned memory: one copy and one event, asked for and never waited for."""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import WeakSet

from otel_ml._internal.device import Deferred, DeviceTensor, copied_tensor

__all__ = ["CAPTURED", "Arrival", "Block", "Blocks", "OneOf", "arrival_of"]

CAPTURED = "a CUDA graph is being captured; record outside of the captured region"


class Block:
    """Pinned memory, and the event after which nothing on the device uses it.

    Attributes:
        words: as whole numbers.
        numbers: the same memory as numbers of 64 bits.
        address: of the first.
        event: recorded again each time.
    """

    __slots__ = ("__weakref__", "address", "event", "numbers", "words")

    def __init__(self, words: int) -> None:
        import torch

        with torch.inference_mode(mode=False):  # else it could not be written to outside of that mode
            self.words = torch.empty(words, dtype=torch.int64, device="cpu", pin_memory=True)
            self.numbers = self.words.view(torch.float64)
        self.address = self.words.data_ptr()
        self.event = torch.cuda.Event()


class Blocks:
    """Pinned memory of one device that is used again and again: to pin some takes as long as many steps.

    The training thread takes, and the thread that reads gives back.
    """

    MOST = 256
    """On their way at the same time; a device that is further behind hangs."""

    def __init__(self) -> None:
        self._free: deque[Block] = deque()
        self._out: WeakSet[Block] = WeakSet()  # what nobody will read any more is given up, and not counted

    def take(self, words: int) -> Block:
        """Return a block of at least so many words.

        Raises:
            RuntimeError: the device is so far behind that memory for it would grow, or there is no more memory to pin.
        """
        if len(self._out) >= self.MOST:
            raise RuntimeError(f"the device is {self.MOST} copies behind: what is recorded now is lost")
        block = self._fitting(words)
        self._out.add(block)
        return block

    def _fitting(self, words: int) -> Block:
        for _ in range(len(self._free)):
            block = self._free.popleft()
            if len(block.words) >= words:
                return block
            self._free.append(block)
        return Block(max(words, 512))

    def give(self, block: Block) -> None:
        """Take back what the device has done with."""
        self._out.discard(block)
        self._free.append(block)


class Arrival:
    """Numbers of a device that will be in the host's memory.

    Once they are, all that is made of them reads the same list.
    """

    __slots__ = ("_coming", "_numbers")

    def __init__(self, coming: Deferred) -> None:
        self._coming: Deferred | None = coming
        self._numbers: list[float] = []

    def ready(self) -> bool:
        """Whether `numbers()` would return at once."""
        return self._coming is None or self._coming.ready()

    def numbers(self) -> list[float]:
        """Return them, row by row."""
        if self._coming is not None:
            self._numbers = self._coming.read()
            self._coming = None
        return self._numbers


class _Pinned(Deferred):
    """What is copied into a block: the first so many numbers of it.

    Once it is there, so is all that was done for it, and every block is free.
    """

    __slots__ = ("_block", "_blocks", "_length", "_others")

    def __init__(self, block: Block, length: int, blocks: Blocks, others: tuple[Block, ...]) -> None:
        self._block = block
        self._length = length
        self._blocks = blocks
        self._others = others

    def ready(self) -> bool:
        return bool(self._block.event.query())

    def read(self) -> list[float]:
        numbers: list[float] = self._block.numbers[: self._length].tolist()
        for block in (self._block, *self._others):
            self._blocks.give(block)
        return numbers


class OneOf(Deferred):
    """One of the numbers that arrive."""

    __slots__ = ("_arrival", "_place")

    def __init__(self, arrival: Arrival, place: int) -> None:
        self._arrival = arrival
        self._place = place

    def ready(self) -> bool:
        """Whether `read()` would return at once."""
        return self._arrival.ready()

    def read(self) -> list[float]:
        """Return it."""
        return [self._arrival.numbers()[self._place]]


def arrival_of(found: Any, blocks: Blocks, others: tuple[Block, ...] = ()) -> Arrival:
    """Begin to copy numbers to the host, on the current stream.

    Args:
        found: a tensor of a device; of CUDA it has 64 bits of floating point and no gaps.
        blocks: from which memory is taken.
        others: blocks that the stream reads before: they are given back together.

    Raises:
        RuntimeError: a CUDA graph is being captured, the device is far behind, or there is no memory to pin.
    """
    if not found.is_cuda:
        return Arrival(DeviceTensor(*copied_tensor(found)))
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(CAPTURED)
    n = found.numel()
    block = blocks.take(n)
    block.numbers[:n].copy_(found.view(-1), non_blocking=True)
    block.event.record(torch.cuda.current_stream(found.device))
    return Arrival(_Pinned(block, n, blocks, others))
