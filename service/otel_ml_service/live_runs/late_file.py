"""The file `late.otlp`: appended to before the commit that counts it, so its length is part of what is committed.

A sequence of OTLP metric requests in protobuf, each after its length in 4 bytes, big-endian: the format of the
Collector's file exporter. Whoever is killed between the append and the commit leaves points that will come again, and
whoever is killed inside the append leaves half of one: both lie behind the committed length and are cut off.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["LateFile", "LateRequests", "read_late"]

_LENGTH = struct.Struct(">I")


class LateRequests(NamedTuple):
    """What can be read of a file.

    Attributes:
        bodies: requests, in order.
        torn: bytes after the last whole one.
    """

    bodies: Sequence[bytes]
    torn: int = 0


def read_late(path: Path) -> LateRequests:
    """Return the whole requests of the file up to the first that is torn; none where there is no file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return LateRequests(())
    bodies: list[bytes] = []
    position = 0
    while (end := _end(content, position)) is not None:
        bodies.append(content[position + _LENGTH.size : end])
        position = end
    return LateRequests(bodies, len(content) - position)


def _end(content: bytes, start: int) -> int | None:
    """Return where the request at `start` ends; None where it is cut off, or empty: zeros are a lost page."""
    if start + _LENGTH.size > len(content):
        return None
    (length,) = _LENGTH.unpack_from(content, start)
    end = start + _LENGTH.size + int(length)
    return end if length and end <= len(content) else None


def _whole_bytes(path: Path) -> int:
    """Return how many bytes of the file are whole requests, by their lengths alone: it may have a GiB."""
    handle = os.open(path, os.O_RDONLY)
    try:
        size, position = os.fstat(handle).st_size, 0
        while len(head := os.pread(handle, _LENGTH.size, position)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            end = position + _LENGTH.size + int(length)
            # As `_end` has it: zeros are a lost page, and what is longer than the file is cut off.
            if not length or end > size:
                break
            position = end
        return position
    finally:
        os.close(handle)


class LateFile:
    """Appends requests, and takes back what no commit knows of.

    Args:
        path: of the file; made with the first request.
        committed: its length as last committed, or None where no commit told it: then all that is whole counts.
        limit: most bytes of the file.

    Attributes:
        length: to be committed with what the requests came from.
        gone: bytes that somebody else removed since the file was opened.
    """

    def __init__(self, path: Path, committed: int | None, limit: int) -> None:
        self._path = path
        self._limit = limit
        self.length = 0
        self.gone = 0
        if path.exists():
            whole = _whole_bytes(path)
            # Less is whole than was committed where a disk or another program has cut the file.
            self.length = whole if committed is None else min(committed, whole)
            self._cut()

    def append(self, bodies: Iterable[bytes]) -> int:
        """Append requests and sync the file; return how many found no room below the limit.

        Raises:
            OSError: nothing of it counts; the same may be appended again.
        """
        data = bytearray()
        left_out = 0
        for body in bodies:
            # A smaller one that follows may still fit.
            if self.length + len(data) + _LENGTH.size + len(body) > self._limit:
                left_out += 1
            else:
                data += _LENGTH.pack(len(body)) + body
        if data:
            self._write(data)
        return left_out

    def _write(self, data: bytearray) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            # Less is there where somebody removed the file: zeros in its place would hide all that follows.
            there = min(self.length, os.fstat(handle).st_size)
            self.gone += self.length - there
            self.length = there
            os.ftruncate(handle, self.length)
            written = 0
            while written < len(data):
                written += os.pwrite(handle, data[written:], self.length + written)
            os.fsync(handle)
        finally:
            os.close(handle)
        self.length += len(data)

    def _cut(self) -> None:
        """Cut the file to its length, if the disk lets us; the next append does it in any case."""
        if self._path.stat().st_size > self.length and os.access(self._path, os.W_OK):
            os.truncate(self._path, self.length)
