"""One file of a journal: a group is appended as a whole, and on the disk, or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from otel_ml_service.storage.journal_frames import Content, read

__all__ = ["JournalFile"]

_GATHERED = os.sysconf("SC_IOV_MAX")
"""Most buffers of one gathered write."""


@dataclass(slots=True, eq=False)
class JournalFile:
    """An open file of a journal; for one thread at a time.

    Attributes:
        path: under which it was opened.
        handle: of the open file.
        size: of what was written as a whole.
        last: highest id of an entry in it.
        is_usable: whether it may be appended to.
    """

    path: Path
    handle: int
    size: int = 0
    last: int = 0
    is_usable: bool = True

    def write(self, parts: Sequence[bytes]) -> None:
        """Append all parts, or none.

        Raises:
            OSError: none was.
        """
        try:
            self.size += _written(self.handle, parts)
        except OSError:
            self._cut(self.size)
            raise

    def sync(self, since: int) -> None:
        """Wait until all is on the disk.

        Args:
            since: size before what was appended since the last sync.

        Raises:
            OSError: it is not, and is taken away again.
        """
        try:
            _sync(self.handle)
        except OSError:
            self.is_usable = False  # the kernel says so once, and takes the pages for written from then on
            self._cut(since)
            raise

    def _cut(self, size: int) -> None:
        self.size = size
        try:
            os.ftruncate(self.handle, size)
        except OSError:
            self.is_usable = False

    def content(self, identity: str) -> Content:
        """Read all of it, also without a name."""
        parts: list[bytes] = []
        position = 0
        while part := os.pread(self.handle, 2**24, position):
            parts.append(part)
            position += len(part)
        return read(b"".join(parts), identity)

    def close(self) -> None:
        """Close it; to be done once."""
        os.close(self.handle)


def _written(handle: int, parts: Sequence[bytes]) -> int:
    """Write all parts, and return how many bytes these are.

    Raises:
        OSError: not all of them were written.
    """
    whole = 0
    for begin in range(0, len(parts), _GATHERED):
        some = parts[begin : begin + _GATHERED]
        size = sum(map(len, some))
        written = os.writev(handle, some)
        # A disk that becomes full, or a signal, ends it in the middle of a buffer; the next write tells why.
        if written < size:
            rest = memoryview(b"".join(some))[written:]
            while rest:
                rest = rest[os.write(handle, rest) :]
        whole += size
    return whole


def _sync(handle: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(handle)
    else:  # macOS
        os.fsync(handle)
