"""What a captured CUDA graph records: memory of the device into which each replay writes a row of values.

Nothing waits for it, and no event is needed. A row is written before the count that says that it is there, and read
after that count, with a copy of our own stream; a second look at the count tells which rows were written again
meanwhile. That a copy has arrived shows in the pinned memory that it goes to.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from os import urandom
from typing import Any, NamedTuple

__all__ = ["Cell", "Ring", "Row"]

_LOW = ("torch.float32", "torch.bfloat16", "torch.float16")
"""Exact in float32: of these all are converted at once."""

# Negative, as neither a count nor `_magic` is.
_NOT_ARRIVED = -1 - (int.from_bytes(urandom(8), "little") >> 2)
"""What memory does not hold by chance."""


class Row(NamedTuple):
    """What one replay has written.

    Attributes:
        token: of the interval of the program in which it ran, see `Cell`.
        values: all that the call recorded, in its order.
    """

    token: int
    values: list[float]


def _memory(size: tuple[int, ...], device: Any) -> Any:
    """Return memory that stays: of the graph's own pool, which an allocation within a capture is taken from.

    With `torch.use_deterministic_algorithms()` a new tensor is filled; in a capture each replay would do that, and
    forget what the ones before it have written. A storage is not.
    """
    torch = sys.modules["torch"]
    storage = torch.UntypedStorage(8 * math.prod(size), device=device)
    return torch.empty(0, dtype=torch.int64, device=device).set_(storage, 0, size)


class Cell:
    """A number on the device that says which interval of the program is current; set in the order of a stream.

    Between two steps it is set anew: a replay writes it into its row, and so tells of which step it was, although the
    program is many steps ahead of the device.

    Attributes:
        value: the number; until it is set first, what the memory held.
        born: the interval in which it was made.
    """

    __slots__ = ("born", "value")

    def __init__(self, device: Any, born: int) -> None:
        self.born = born
        self.value = _memory((1,), device)

    def set(self, token: int) -> None:
        """Set it on the current stream, after what was launched there and before what will be."""
        self.value.fill_(token)


class Ring:
    """The last rows of one recording call in one captured graph.

    It begins with whatever the memory held: that is one of the first replay, for which no launch outside of the graph
    has to be in order with it.

    Attributes:
        cell: of its device.
        seen: rows read so far.
        passed: the interval that had begun for sure when it was read last, None before.
    """

    ROWS = 1024
    """Replays between two looks, a quarter of a second apart; what is more is lost, and counted."""

    __slots__ = ("_columns", "_is_read", "_magic", "_rows", "_staging", "_state", "cell", "passed", "seen")

    def __init__(self, cell: Cell, columns: int) -> None:
        self.cell = cell
        self.seen = 0
        self.passed: int | None = None
        # The first one is the token.
        self._columns = 1 + columns
        self._magic = int.from_bytes(urandom(8), "little") >> 2
        self._state = _memory((2,), cell.value.device)
        self._rows = _memory((self.ROWS, self._columns), cell.value.device)
        self._staging: Any = None
        self._is_read = True

    def write(self, tensors: Sequence[Any]) -> None:
        """Write a row of all elements of `tensors`, in their order; becomes part of the graph that is captured."""
        torch = sys.modules["torch"]
        # 0 at the first replay: without its magic number the memory holds anything.
        count = (self._state[0] == self._magic) * self._state[1]
        row = torch.cat([self.cell.value, _doubles(torch, tensors).view(torch.int64)])
        place = count.remainder(self.ROWS).reshape(1)
        # Not `index_copy_()`: of deterministic algorithms it looks on the host whether the place is one, which waits
        # for the device, and so ends the capture. The last argument says that it is.
        torch._index_put_impl_(self._rows, (place,), row.reshape(1, -1), False, True)
        torch.add(count, 1, out=self._state[1])
        self._state[0].fill_(self._magic)

    def look(self) -> None:
        """Begin to copy everything on the current stream, one that nothing else uses."""
        if self._staging is None:
            torch = sys.modules["torch"]
            # The five are those of `_parts()`: the token, and twice the magic number and the count.
            size = 5 + self.ROWS * self._columns
            self._staging = torch.empty(size, dtype=torch.int64, device="cpu", pin_memory=True)
        token, first, rows, last = self._parts()
        last.fill_(_NOT_ARRIVED)
        self._is_read = False
        token.copy_(self.cell.value, non_blocking=True)
        first.copy_(self._state, non_blocking=True)
        rows.copy_(self._rows, non_blocking=True)
        last.copy_(self._state, non_blocking=True)

    @property
    def is_looking(self) -> bool:
        """Whether a copy is under way, or has arrived and was not taken."""
        return not self._is_read

    def take(self) -> tuple[list[Row], int] | None:
        """Return the rows that are new, and how many were written over before; None while the copy is under way."""
        token, first, rows, last = self._parts()
        # Copied last, in the order of the stream: when it is here, all is.
        magic, count_after = last.tolist()
        if _NOT_ARRIVED in {magic, count_after}:
            return None
        self._is_read = True
        self.passed = int(token[0])
        # By the count that was copied before the rows: up to it they are complete.
        written = self._count(*first.tolist())
        # One less than the ring holds: the row that comes next may be half written over the oldest of them.
        oldest = max(self.seen, self._count(magic, count_after) - self.ROWS + 1)
        lost = max(0, min(oldest, written) - self.seen)
        torch = sys.modules["torch"]
        places = torch.tensor(
            [number % self.ROWS for number in range(oldest, written)], dtype=torch.int64, device="cpu"
        )
        self.seen = max(written, self.seen)
        found = rows[places]
        values = found[:, 1:].contiguous().view(torch.float64).tolist()
        return [Row(*row) for row in zip(found[:, 0].tolist(), values, strict=True)], lost

    def _count(self, magic: int, count: int) -> int:
        return count if magic == self._magic else 0

    def _parts(self) -> tuple[Any, Any, Any, Any]:
        staging = self._staging
        # token (1) | magic and count before (2) | the same after (2) | ROWS × (token, values)
        return staging[:1], staging[1:3], staging[5:].view(self.ROWS, self._columns), staging[3:5]


def _doubles(torch: Any, tensors: Sequence[Any]) -> Any:
    """Return all elements as float64: those that float32 holds by one conversion, where no other is among them."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    if all(str(tensor.dtype) in _LOW for tensor in flat):
        return torch.cat(flat).to(torch.float64)
    return torch.cat([tensor.to(torch.float64) for tensor in flat])
