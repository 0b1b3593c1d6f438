"""Numbers on their way from a device into pinned memory: one copy and one event, asked for and never waited for."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import Any

from otel_ml._internal.device_tensor import Deferred, DeviceTensor, copied_tensor
from otel_ml._internal.devices.cuda_thread import CAPTURING, be_on, captures_left_alone

__all__ = ["Block", "Blocks", "CopyToHost", "OneOf", "arrival_of"]


class Block:
    """Pinned memory, and the event after which nothing on the device uses it.

    Attributes:
        words: as whole numbers.
        numbers: the same memory as numbers of 64 bits.
        address: of the first.
        event: recorded again each time.
    """

    __slots__ = ("address", "event", "numbers", "words")

    def __init__(self, words: Any, event: Any) -> None:
        import torch

        self.words: Any = words
        # Addresses and sizes are sent to the device in such blocks, and results come back in them.
        self.numbers: Any = words.view(torch.float64)
        self.address: Any = words.data_ptr()
        self.event: Any = event


class Blocks:
    """Pinned memory of one device that is used again and again: to pin some takes as long as many steps.

    The training thread takes blocks, and gives back itself those of copies that are done where no other is left: the
    thread that reads comes by once in a while. So there are as many as are on their way at a time.
    """

    MOST = 256
    """Copies on their way at the same time; a device that is further behind hangs."""

    TOGETHER = 8
    """Blocks that are made at once, unless they are large."""

    LARGE = 4096
    """Words from which a block is."""

    AGAIN_S = 10.0
    """Seconds after which more memory is asked for, where there was none: each attempt costs training, too."""

    def __init__(self) -> None:
        self._free: deque[Block] = deque()
        self._coming: deque[_Pinned] = deque()
        self._not_before = 0.0

    def take(self, words: int) -> Block:
        """Return a block of at least so many words.

        Raises:
            RuntimeError: the device is so far behind that memory for it would grow, or there is no more memory to pin.
        """
        # Copies of a stream arrive in their order, so the oldest stands first.
        while self._coming and self._coming[0].is_read:
            self._coming.popleft()
        block = self._fitting(words)
        if block is None and self._coming:
            self._read_done()
            block = self._fitting(words)
        if block is None and len(self._coming) >= self.MOST:
            raise RuntimeError(f"the device is {self.MOST} copies behind: what is recorded now is lost")
        # A page of memory at least: what is asked for next may be larger, and finds the block large enough.
        return self._more(max(words, 512)) if block is None else block

    def _fitting(self, words: int) -> Block | None:
        for _ in range(len(self._free)):
            # The thread that reads gives blocks back meanwhile: a deque takes them from both ends without a lock.
            block = self._free.popleft()
            if len(block.words) >= words:
                return block
            self._free.append(block)
        return None

    def _read_done(self) -> None:
        with captures_left_alone():
            while self._coming and self._coming[0].is_done():
                self._coming.popleft().take_numbers()

    def _more(self, words: int) -> Block:
        if monotonic() < self._not_before:
            raise RuntimeError("there was no memory to pin")
        try:
            return self._new(words)
        except RuntimeError:
            self._not_before = monotonic() + self.AGAIN_S
            raise

    def _new(self, words: int) -> Block:
        import torch

        words += -words % 64  # no two blocks share a line of the cache
        together = 1 if words > self.LARGE else self.TOGETHER
        # Made in the mode of inference, it could be written to in that mode only.
        with captures_left_alone(), torch.inference_mode(mode=False):
            memory = torch.empty(together * words, dtype=torch.int64, device="cpu", pin_memory=True)
            first, *others = [Block(part, torch.cuda.Event()) for part in memory.split(words)]
        self._free.extend(others)
        return first

    def give(self, block: Block) -> None:
        """Take back what the device has done with."""
        self._free.append(block)

    def expect(self, coming: _Pinned) -> None:
        """Know of a copy that has begun."""
        self._coming.append(coming)


class CopyToHost:
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

    Once it is there, so is all that was done for it, and every block is free. Who comes first takes the numbers, the
    thread that reads or the training thread, which needs the block.
    """

    __slots__ = ("_block", "_blocks", "_index", "_length", "_lock", "_numbers", "_others", "is_read")

    def __init__(self, block: Block, index: int, length: int, blocks: Blocks, others: tuple[Block, ...]) -> None:
        self._block = block
        self._index = index
        self._length = length
        self._blocks = blocks
        self._others = others
        self._lock = threading.Lock()
        self._numbers: Any = None
        self.is_read: bool = False

    def ready(self) -> bool:
        """Ask the device; on a thread of ours."""
        if self.is_read:
            return True
        be_on(self._index)
        return self.is_done()

    def is_done(self) -> bool:
        """Ask the device."""
        with self._lock:
            return self.is_read or bool(self._block.event.query())

    def take_numbers(self) -> Any:
        """Take them out of the block, and give that back, unless that was done."""
        with self._lock:
            if not self.is_read:
                self._numbers = self._block.numbers[: self._length].clone()
                self.is_read = True
                # After the numbers were taken out: whoever gets the block writes over them.
                for block in (self._block, *self._others):
                    self._blocks.give(block)
        return self._numbers

    def read(self) -> list[float]:
        """Return the numbers."""
        numbers: list[float] = self.take_numbers().tolist()
        return numbers


class OneOf(Deferred):
    """One of the numbers that arrive."""

    __slots__ = ("_arrival", "_place")

    def __init__(self, arrival: CopyToHost, place: int) -> None:
        self._arrival = arrival
        self._place = place

    def ready(self) -> bool:
        """Whether `read()` would return at once."""
        return self._arrival.ready()

    def read(self) -> list[float]:
        """Return it."""
        return [self._arrival.numbers()[self._place]]


def arrival_of(found: Any, blocks: Blocks, others: tuple[Block, ...] = ()) -> CopyToHost:
    """Begin to copy numbers to the host, on the current stream.

    Args:
        found: a tensor of a device; of CUDA it has 64 bits of floating point and no gaps.
        blocks: from which memory is taken.
        others: blocks that the stream reads before: they are given back together.

    Raises:
        RuntimeError: a CUDA graph is being captured, the device is far behind, or there is no memory to pin.
    """
    if not found.is_cuda:
        return CopyToHost(DeviceTensor(*copied_tensor(found)))
    import torch

    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(CAPTURING)
    n = found.numel()
    block = blocks.take(n)
    block.numbers[:n].copy_(found.view(-1), non_blocking=True)
    # Behind the copy on the same stream: once it has come, so has the copy.
    block.event.record(torch.cuda.current_stream(found.device))
    coming = _Pinned(block, found.device.index, n, blocks, others)
    blocks.expect(coming)
    return CopyToHost(coming)
