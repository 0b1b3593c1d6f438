"""An append-only TensorBoard event file that knows how far it got.

The file is a sequence of TFRecord frames (length, masked CRC of it, payload, masked CRC of it), each holding one
Event. The last Event of every record of ours begins with the record's `seq`, in a field that readers skip: what is
stored and how far one got are the same bytes, so no crash can come between them. `open` cuts off what follows the
last whole Event with a `seq` and appends from there.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from otel_ml_exporters.backends.tensorboard.checksum import masked_crc
from otel_ml_exporters.backends.tensorboard.summary import version_event
from otel_ml_exporters.open_file import has_name

__all__ = ["SEQ_PREFIX", "EventFile", "frame", "marked"]

SEQ_PREFIX = b"\xc1\x3e"
"""Tag of field 1000, fixed64. tensorflow.Event ends at field 10; readers of protobuf skip what they do not know."""

_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_OVERHEAD = _HEADER.size + _CRC.size
_LENGTH = struct.Struct("<Q")

_CHECKED_TAIL = 1 << 20
"""Bytes at the end whose payloads are verified at `open`: more than a kill or a power cut leaves torn."""


def marked(seq: int, event: bytes) -> bytes:
    """Return `event` as the last one of record `seq`."""
    return SEQ_PREFIX + _LENGTH.pack(seq) + event


def frame(event: bytes) -> bytes:
    """Return `event` as a TFRecord."""
    length = _LENGTH.pack(len(event))
    return b"".join((length, _CRC.pack(masked_crc(length)), event, _CRC.pack(masked_crc(event))))


class EventFile:
    """One event file, opened for appending; not for several threads."""

    def __init__(self, path: Path, *, created: float) -> None:
        self._path = path
        self._created = created
        self._file: int | None = None
        self._size = 0
        self.last_seq = 0
        """`seq` of the last record in the file; 0 while it has none."""

    def open(self) -> None:
        """Create the file, or cut it after its last whole record, and append from there.

        Raises:
            OSError: the file cannot be created, read or written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o664)
        self.last_seq, self._size = _last_record(self._file)
        os.ftruncate(self._file, self._size)
        if not self._size:
            self.append([version_event(self._created)], seq=0)

    def append(self, events: Iterable[bytes], *, seq: int) -> None:
        """Write `events`, the last of them `marked` with `seq`; all of them or none.

        They are in the hands of the operating system when this returns.

        Raises:
            OSError: nothing was written.
        """
        assert self._file is not None, "open() comes first"
        data = b"".join(map(frame, events))
        try:
            _write_all(self._file, data)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        self.last_seq = max(self.last_seq, seq)

    @property
    def is_intact(self) -> bool:
        """Whether the file has its name, and all that was appended."""
        return self._file is None or has_name(self._file, self._path, self._size)

    def sync(self) -> None:
        """Wait until the disk has what was appended."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file; again is fine."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _write_all(file: int, data: bytes) -> None:
    written = os.write(file, data)
    while written < len(data):
        written += os.write(file, data[written:])


def _last_record(file: int) -> tuple[int, int]:
    """Return the `seq` of the last whole record and where it ends; (0, 0) where even the version is torn."""
    size = os.fstat(file).st_size
    if not size:
        return 0, 0
    with mmap.mmap(file, size, access=mmap.ACCESS_READ) as data:
        seq, end, at = 0, 0, 0
        while (after := _whole(data, at, size)) is not None:
            if not end:
                end = after
            if data[at + _HEADER.size : at + _HEADER.size + 2] == SEQ_PREFIX:
                (seq,) = _LENGTH.unpack_from(data, at + _HEADER.size + 2)
                end = after
            at = after
        return seq, end


def _whole(data: mmap.mmap, at: int, size: int) -> int | None:
    """Return where the frame at `at` ends, or None if it is torn."""
    if at + _OVERHEAD > size:
        return None
    length, crc = _HEADER.unpack_from(data, at)
    after: int = at + _OVERHEAD + length
    if after > size or masked_crc(data[at : at + 8]) != crc:
        return None
    if at >= size - _CHECKED_TAIL:
        payload = data[at + _HEADER.size : after - _CRC.size]
        if masked_crc(payload) != _CRC.unpack_from(data, after - _CRC.size)[0]:
            return None
    return after
