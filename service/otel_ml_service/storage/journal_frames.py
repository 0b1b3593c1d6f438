r"""The format of a journal's files: what was acknowledged and is not yet decided, appended and never changed.

::

    journal-<number>.log, beside journal.db
    header   "otel_ml journal <version> <identity>\n"
    frame    mark (4 bytes) · kind (1 byte) · id (u64) · length (u32) · CRC-32 of the payload (u32)
             · CRC-32 of the identity and all before (u32) · payload
             M, T, L  a request of metrics, traces, logs: OTLP protobuf
             D        everything up to this id is dropped; no payload

A file may end inside a frame where its writer was killed, or in zeros where its host lost its power: what is before is
good. Behind a damaged place the next frame is found by its mark, and the CRC of its header tells it from data. A sender
that writes a frame into its request does not know the identity.
"""

from __future__ import annotations

import errno
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from otel_ml_service.versions import JOURNAL

__all__ = [
    "MAX_ID",
    "Content",
    "Entry",
    "Head",
    "Place",
    "as_frame",
    "as_head",
    "body_at",
    "drop_frame",
    "head_of",
    "is_entry",
    "read",
    "seed_of",
]

MAX_ID = 2**62
"""No entry has a higher id: what says so is damaged."""

_HEAD = re.compile(rb"otel_ml journal (\d{1,9}) ([0-9a-f]{1,64})\n")
_MARK = b"\xff\xfejr"
_FRAME = struct.Struct("<4scQII")
_CHECKSUM = struct.Struct("<I")
_SIZE = _FRAME.size + _CHECKSUM.size
_KINDS = {"metrics": b"M", "traces": b"T", "logs": b"L"}
_SIGNALS = {kind: signal for signal, kind in _KINDS.items()}
_DROPPED = b"D"


@dataclass(frozen=True, slots=True)
class Entry:
    """One accepted request: `body` is OTLP protobuf, `signal` is `metrics`, `traces` or `logs`."""

    id: int
    signal: str
    body: bytes


def is_entry(row: Sequence[object]) -> bool:
    """Whether an id, a signal and a body may be what a service wrote."""
    number, signal, body = row
    return isinstance(number, int) and 0 < number <= MAX_ID and signal in _KINDS and isinstance(body, bytes)


class Place(NamedTuple):
    """Where an entry's frame begins; the file may have been deleted since."""

    path: Path
    begin: int


class Head(NamedTuple):
    """What a file begins with: the version of its form, and the identity of its journal."""

    version: int
    identity: str


class Content(NamedTuple):
    """What a file holds.

    Attributes:
        entries: in the order of the file.
        dropped: the highest id up to which it says that everything is dropped; 0 without one.
        damaged: bytes that are not what was written, without a torn end.
    """

    entries: Sequence[Entry]
    dropped: int
    damaged: int


class _Frame(NamedTuple):
    kind: bytes
    id: int
    begin: int
    end: int
    checksum: int


def as_head(identity: str) -> bytes:
    """Return what a file of this journal begins with."""
    return b"otel_ml journal %d %s\n" % (JOURNAL, identity.encode())


def head_of(content: bytes) -> Head | None:
    """Return what a file begins with; None where that cannot be read."""
    found = _HEAD.match(content)
    return None if found is None else Head(int(found[1]), found[2].decode())


def seed_of(identity: str) -> int:
    """Return what the checksums of a journal's frames begin with."""
    return zlib.crc32(identity.encode())


def as_frame(number: int, signal: str, body: bytes, seed: int) -> bytes:
    """Return the header of an entry's frame; `body` follows it in the file."""
    return _header(_KINDS[signal], number, body, seed)


def drop_frame(up_to: int, seed: int) -> bytes:
    """Return the frame that says that everything up to this id is dropped."""
    return _header(_DROPPED, up_to, b"", seed)


def read(content: bytes, identity: str) -> Content:
    """Return what of a file is as it was written.

    Args:
        content: of the file.
        identity: of the journal.
    """
    entries: list[Entry] = []
    head, seed = as_head(identity), seed_of(identity)
    # A file that begins otherwise is searched from its first byte on: the identity is in the checksum of each frame.
    position = len(head) if content.startswith(head) else 0
    dropped = damaged = 0
    while position < len(content):
        frame = _frame_at(content, position, seed)
        if frame is None:
            following = _next(content, position + 1, seed)
            if following is None:
                # No header that is right follows: a torn end, if what is left may be the beginning of one.
                damaged += 0 if _is_torn_header(content, position, head) else len(content) - position
                break
            damaged, position = damaged + following - position, following
            continue
        body = content[frame.begin : frame.end]
        if len(body) == frame.end - frame.begin and zlib.crc32(body) == frame.checksum:
            if frame.kind == _DROPPED:
                dropped = max(dropped, frame.id)
            else:
                entries.append(Entry(frame.id, _SIGNALS[frame.kind], body))
        # The header is right and its payload is not all there, or ends in zeros: torn, so it was never acknowledged.
        elif _written(content) < frame.end:
            break
        else:
            # The length stands in the header, which is right: the next frame begins where this one ends.
            damaged += frame.end - position
        position = frame.end
    return Content(entries, dropped, damaged)


def body_at(place: Place, number: int, identity: str) -> bytes:
    """Read the body of one entry again.

    Raises:
        OSError: it is not there.
    """
    with place.path.open("rb") as file:
        file.seek(place.begin)
        header = file.read(_SIZE)
        frame = _frame_at(header, 0, seed_of(identity))
        if frame is None or frame.id != number:
            raise OSError(errno.ENOENT, f"Entry {number} of the journal is not at {place.begin}", str(place.path))
        body = file.read(frame.end - frame.begin)
    if len(body) != frame.end - frame.begin or zlib.crc32(body) != frame.checksum:
        raise OSError(errno.EIO, f"Entry {number} of the journal is damaged", str(place.path))
    return body


def _header(kind: bytes, number: int, body: bytes, seed: int) -> bytes:
    start = _FRAME.pack(_MARK, kind, number, len(body), zlib.crc32(body))
    return start + _CHECKSUM.pack(zlib.crc32(start, seed))


def _frame_at(content: bytes, position: int, seed: int) -> _Frame | None:
    """Return the frame whose header is at `position`; its payload may be damaged."""
    begin = position + _SIZE
    if begin > len(content) or content[position : position + len(_MARK)] != _MARK:
        return None
    start = content[position : position + _FRAME.size]
    if _CHECKSUM.unpack_from(content, position + _FRAME.size)[0] != zlib.crc32(start, seed):
        return None
    _, kind, number, length, checksum = _FRAME.unpack(start)
    if number > MAX_ID or (kind not in _SIGNALS and kind != _DROPPED):
        return None
    return _Frame(kind, number, begin, begin + length, checksum)


def _next(content: bytes, position: int, seed: int) -> int | None:
    """Return where the next frame begins, from `position` on."""
    while (position := content.find(_MARK, position)) >= 0:
        if _frame_at(content, position, seed) is not None:
            return position
        position += 1
    return None


def _is_torn_header(content: bytes, position: int, head: bytes) -> bool:
    """Whether what is from `position` to the end may be the beginning of what was to be written there."""
    written = _written(content)
    return head.startswith(content[:written]) if position == 0 else written - position < _SIZE


def _written(content: bytes) -> int:
    """Return the size of a file without the zeros at its end."""
    return len(content.rstrip(b"\0"))
