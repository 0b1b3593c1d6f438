"""LevelDB's log format, in which W&B and SwanLab keep the messages of a run.

A file is a header of 7 bytes, then blocks of 32 KiB of frames: CRC-32 (of type and data; LevelDB's own is CRC-32C),
length, type, data. One to many frames make a record. Where no frame fits into what is left of a block, zeros fill it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

__all__ = ["framed", "records"]

_BLOCK = 32 * 1024
_FRAME = struct.Struct("<IHB")  # checksum, length, type
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_TYPES = {(True, True): _FULL, (True, False): _FIRST, (False, False): _MIDDLE, (False, True): _LAST}


def framed(messages: Iterable[bytes], at: int) -> bytes:
    """Return `messages` as they stand in a file that has `at` bytes so far.

    What is left of a block is filled at once where no message can begin in it: SwanLab's reader expects the filling
    also where nothing follows.
    """
    out = bytearray()
    for message in messages:
        left, first = message, True
        # An empty message is a record, too.
        while left or first:
            # There is room for a header at least: what is left of a block is filled below, and a part that does not fit
            # ends with its block.
            space = _BLOCK - (at + len(out)) % _BLOCK
            part, left = left[: space - _FRAME.size], left[space - _FRAME.size :]
            kind = _TYPES[first, not left]
            out += _FRAME.pack(_checksum(kind, part), len(part), kind) + part
            first = False
        space = _BLOCK - (at + len(out)) % _BLOCK
        if space < _FRAME.size:
            out += bytes(space)
    return bytes(out)


def records(file: BinaryIO, position: int) -> Iterator[tuple[int, bytes]]:
    """Yield (end offset, content) of every whole record from `position` on; stop before a torn or damaged one."""
    file.seek(position)
    parts: list[bytes] = []
    while True:
        space = _BLOCK - position % _BLOCK
        if space < _FRAME.size:
            position += space
            file.seek(position)
        head = file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            return
        checksum, length, kind = _FRAME.unpack(head)
        data = file.read(length)
        if len(data) < length or _checksum(kind, data) != checksum:
            return
        position += _FRAME.size + length
        # Frames before this one whose last one is missing are left out.
        if kind in {_FULL, _FIRST}:
            parts = []
        parts.append(data)
        if kind in {_FULL, _LAST}:
            yield position, b"".join(parts)


def _checksum(kind: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(bytes((kind,))))
