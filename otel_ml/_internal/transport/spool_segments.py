"""Where the frames of a spool lie: in files that survive the process, or in memory where none can be written."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from otel_ml._internal.transport.file_descriptor import OwnDescriptor, above_standard
from otel_ml.wire.spool_format import encode_head

__all__ = ["FileSegment", "MemorySegment", "Segment", "TakenError"]


class Segment(Protocol):
    """Where frames lie."""

    size: int

    def append(self, parts: Sequence[bytes]) -> int:
        """Append frames, their headers and payloads in turns; return where they begin; raise `OSError` if it cannot."""

    def read(self, offset: int, length: int) -> bytes:
        """Return a payload."""

    def clear(self) -> None:
        """Forget all frames but the resource."""

    def is_on_disk(self) -> bool:
        """Whether all that was appended is there for others when this process has ended."""

    def delete(self) -> None:
        """Give everything up, also on disk."""

    def close(self) -> None:
        """Let go of the file and leave it on disk."""


class TakenError(FileNotFoundError):
    """The program had closed the file, which unlocks it; who found it so has sent what it held, and removed it."""


class FileSegment:
    """One file, locked while this process lives.

    It is opened again where the program has closed it.
    """

    def __init__(self, path: Path, resource: bytes, endpoint: str = "", variable: str = "") -> None:
        self._path = path
        self.size = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = OwnDescriptor(above_standard(os.open(path, flags, 0o600)))
        try:
            self._begin(encode_head(resource, endpoint, variable))
        except BaseException:  # a full disk, once a second: neither the descriptor nor the name is left behind
            self.delete()
            raise
        self._head = self.size

    def _begin(self, head: Sequence[bytes]) -> None:
        # The lock tells the living from the dead: the kernel releases it when the process ends, however it ends.
        # Whoever gets it may send what is in the file. A pid could have been given to another process by then.
        fcntl.flock(self._file.number, fcntl.LOCK_EX)
        if not os.fstat(self._file.number).st_nlink:  # who looks for files of the dead was quicker with the lock
            raise FileNotFoundError(self._path)
        self.append(head)

    def append(self, parts: Sequence[bytes]) -> int:
        begin, length = self.size, sum(map(len, parts))
        # A half frame would end the file for every reader: what is behind it could not be found anymore.
        file = self._open_file()
        # One call takes 1,024 parts at most. `Spool.extend()` gives it a few frames, of two parts each.
        if (written := os.writev(file, parts)) < length:
            try:
                while written < length:  # the disk is full: the first write does not say why
                    written += os.write(file, b"".join(parts)[written:])
            except OSError:
                os.ftruncate(file, begin)
                raise
        self.size += length
        return begin

    def read(self, offset: int, length: int) -> bytes:
        found = os.pread(self._open_file(), length, offset)
        if len(found) < length:
            raise OSError(f"{self._path} was cut by another program.")
        return found

    def clear(self) -> None:
        os.ftruncate(self._open_file(), self._head)
        self.size = self._head

    def is_on_disk(self) -> bool:
        # People and purges delete, move and cut files; what no longer has a name here ends with this process.
        with suppress(OSError):
            found = self._status()
            return (found.st_dev, found.st_ino) == self._file.identity and found.st_size == self.size
        return False

    def _status(self) -> os.stat_result:
        try:
            return self._path.stat(follow_symlinks=False)
        except PermissionError:  # the program has given up its rights: who has them finds the file all the same
            found = os.fstat(self._file.number)
            if found.st_nlink:
                return found
            raise

    def delete(self) -> None:
        try:
            self._path.unlink(missing_ok=True)
        except OSError:  # the folder was made read-only, or something else is in its place
            with suppress(OSError):
                os.ftruncate(self._open_file(), 0)  # or another process would send what was acknowledged
        self.close()

    def close(self) -> None:
        self._file.close()

    def _open_file(self) -> int:
        """Return the descriptor; the file is opened again where the program has closed it."""
        if not self._file.is_ours():
            self._file = self._opened_again()
        return self._file.number

    def _opened_again(self) -> OwnDescriptor:
        try:
            file = OwnDescriptor(
                above_standard(os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC))
            )
        except FileNotFoundError:
            raise TakenError(self._path) from None
        if file.identity == self._file.identity:
            fcntl.flock(file.number, fcntl.LOCK_EX)  # who sends it for a dead process has it until it is gone
            if os.fstat(file.number).st_nlink:
                return file
        file.close()
        raise TakenError(self._path)


class MemorySegment:
    """The same in memory, where no file can be written."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.size = 0

    def append(self, parts: Sequence[bytes]) -> int:
        begin = self.size
        self._bytes += b"".join(parts)
        self.size = len(self._bytes)
        return begin

    def read(self, offset: int, length: int) -> bytes:
        found = bytes(self._bytes[offset : offset + length])
        if len(found) < length:  # an empty request would be acknowledged, and what it should have held forgotten
            raise OSError("what was kept in memory is gone.")
        return found

    def clear(self) -> None:
        self._bytes.clear()
        self.size = 0

    def is_on_disk(self) -> bool:
        return False

    def delete(self) -> None:
        """A request that is tried again reads what it holds here: it goes with the last one that does."""

    def close(self) -> None:
        """Nothing is held open."""
