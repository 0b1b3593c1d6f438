"""Spans of a stretch of time, of a `spans.jsonl` that is asked many times: what is in a block is found out once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_exporters.records import Span
from otel_ml_service.stored_runs.follow_spans import SLACK_NS, offset_of, span_in

__all__ = ["SpanBlocks"]

_BLOCK = 4 * 2**20
"""Bytes of a block: some 10,000 lines."""

_KEPT = 128
"""Blocks that are remembered, 240 kB each."""

_MOST = 64
"""Blocks that are looked at for one stretch of time."""

# Before these keys stands no text but the name, in which a `"` has a `\` before it.
_TIMES = re.compile(rb'^[^\n]*?"start_ns": ?(\d{1,19}), ?"end_ns": ?(\d{1,19})\D', re.MULTILINE)


class _Block(NamedTuple):
    """Where the lines of a block begin in the file, and from when to when their spans are, in nanoseconds."""

    offsets: npt.NDArray[np.int64]
    begins: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


class SpanBlocks:
    """Finds spans by their time.

    Args:
        path: the file; of one that grows what is whole is found.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[int, int], _Block] = {}

    def between(self, begin_ns: int, end_ns: int, *wanted: bytes) -> Iterator[Span]:
        """Yield the spans that overlap a stretch of time, from lines that hold all that is `wanted`.

        The file is in the order in which spans arrived, so the stretch is found by bisection.
        """
        if not self._path.is_file():
            return
        size = self._path.stat().st_size
        with self._path.open("rb") as file:
            first = offset_of(file, size, begin_ns - SLACK_NS) // _BLOCK
            for number in range(first, min(first + _MOST, size // _BLOCK + 1)):
                block = self._block(file, number, size)
                for row in np.flatnonzero((block.ends >= begin_ns) & (block.begins <= end_ns)).tolist():
                    file.seek(block.offsets[row])
                    line = file.readline()
                    span = span_in(line) if all(part in line for part in wanted) else None
                    if span is not None:
                        yield span
                # Lines are out of order by the slack at most: no later one is of this stretch.
                if len(block.ends) and block.ends[-1] > end_ns + SLACK_NS:
                    return

    def _block(self, file: IO[bytes], number: int, size: int) -> _Block:
        # At the end of the file a block may become more, and so may the line with which it ends.
        key = number, min(size, (number + 2) * _BLOCK)
        block = self._known.pop(key, None) or _read(file, number)
        self._known[key] = block
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]  # the one that was asked for least lately
        return block


def _read(file: IO[bytes], number: int) -> _Block:
    """Read the lines that begin in a block of the file."""
    begin = max(0, number * _BLOCK - 1)
    file.seek(begin)
    if number:
        file.readline()  # of the block before; nothing, where a line begins with this one
    begin = file.tell()
    content = file.read(max(0, (number + 1) * _BLOCK - begin))
    if content and not content.endswith(b"\n"):
        content += file.readline()
    found = [(match.start() + begin, int(match[1]), int(match[2])) for match in _TIMES.finditer(content)]
    # `reshape` gives a block without spans its three columns, too.
    columns = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return _Block(*columns)
