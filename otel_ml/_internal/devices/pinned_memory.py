"""Pinned memory that batches of device values are copied into: a copy into other memory makes the host wait."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from otel_ml._internal.devices.cuda_thread import captures_left_alone
from otel_ml._internal.devices.plain_torch_mode import plain_torch_mode
from otel_ml._internal.error_reporting import reporter

__all__ = ["SIZE", "Block", "PinnedPool", "prefixes"]

SIZE = 1024
"""Values of a block, and of a batch; eight bytes each."""

_CUTS = (16, 64, 256, SIZE)
"""Values that are copied: the next of these, so that no copy makes views of its own."""

_SLAB = 32
"""Blocks that are allocated at once: to pin memory takes a lock of the driver."""

_MOST_LARGE = 64 * 2**20
"""Bytes of blocks for longer vectors, that are in use at a time."""

_AGAIN_S = 10.0
"""Seconds after an out-of-memory in which no more is asked for: each attempt costs training, too."""


def prefixes(memory: Any) -> Sequence[Any]:
    """Return the views of the first 16, 64, … values of a tensor."""
    return [memory[:cut] for cut in _CUTS]


class Block:
    """Pinned memory for one batch, with the event of its copy; both are used again and again.

    Attributes:
        memory: the values, as float64.
    """

    __slots__ = ("_event", "_prefixes", "memory")

    def __init__(self, memory: Any, event: Any) -> None:
        self.memory = memory
        self._prefixes = prefixes(memory) if len(memory) == SIZE else ()
        self._event = event

    def begin_copy(self, values: Any, cuts: Sequence[Any], used: int, stream: Any) -> None:
        """Copy the first `used` of the values on the device, on its current stream, which is `stream`."""
        # The next larger cut, of which there are views already: what it has too many is copied, and never read.
        place = next((place for place, cut in enumerate(_CUTS) if cut >= used), None)
        if place is None or not cuts or not self._prefixes:
            self.memory[:used].copy_(values[:used], non_blocking=True)
        else:
            self._prefixes[place].copy_(cuts[place], non_blocking=True)
        self._event.record(stream)

    def has_arrived(self) -> bool:
        """Whether the copy is done; nothing waits."""
        return bool(self._event.query())

    def read(self, used: int) -> list[float]:
        """Return what has arrived: host memory by now."""
        values: list[float] = self.memory[:used].tolist()
        return values


class PinnedPool:
    """The blocks of one device: as many as were under way at a time, within a bound.

    Attributes:
        made: blocks there are.
    """

    MOST = 512
    """Of `made`: 4 MiB."""

    def __init__(self) -> None:
        self.made = 0
        self._free: list[Block] = []
        self._large = 0
        self._not_before = 0.0

    def take(self, torch: Any, used: int) -> Block | None:
        """Return a block for so many values; None where there is none left, and no memory for another."""
        if used > SIZE:
            return self._take_large(torch, used)
        try:
            return self._free.pop()
        except IndexError:
            return self._grow(torch)

    def give_back(self, block: Block) -> None:
        """Take a block that was read."""
        if len(block.memory) == SIZE:
            self._free.append(block)
        else:
            # Let go, and not kept: the next long vector may have another length.
            self._large -= 8 * len(block.memory)

    def _grow(self, torch: Any) -> Block | None:
        if self.made >= self.MOST:
            return None
        slab = self._pinned(torch, _SLAB * SIZE)
        if slab is None:
            return None
        with plain_torch_mode(torch):
            blocks = [Block(part, torch.cuda.Event()) for part in slab.split(SIZE)]
        self.made += len(blocks)
        self._free += blocks[1:]
        return blocks[0]

    def _take_large(self, torch: Any, used: int) -> Block | None:
        if self._large + 8 * used > _MOST_LARGE:
            return None
        memory = self._pinned(torch, used)
        if memory is None:
            return None
        self._large += 8 * used
        return Block(memory, torch.cuda.Event())

    def _pinned(self, torch: Any, size: int) -> Any:
        if monotonic() < self._not_before:
            return None
        try:
            with captures_left_alone(), plain_torch_mode(torch):
                return torch.empty(size, dtype=torch.float64, device="cpu", pin_memory=True)
        # An out-of-memory error of torch's is one, too.
        except RuntimeError as error:
            self._not_before = monotonic() + _AGAIN_S
            reason = str(error).partition("\n")[0]
            reporter.say(
                "pinned-memory",
                f"No more pinned memory ({reason}): values on the device wait there until some is free.",
                kind="pinned memory",
            )
            return None
