"""A file that is kept open and appended to; others may delete, move, replace or cut it meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["OpenFile", "has_name", "identity"]


def identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from any other; None where there is none of this name.

    Raises:
        OSError: nobody can tell now, as on a network file system that does not answer.
    """
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def has_name(handle: int, path: Path, size: int = 0) -> bool:
    """Whether `path` is the open file, and has at least `size` bytes; also where nobody can tell now.

    Args:
        handle: of the open file.
        path: under which it was opened.
        size: what was written to it.
    """
    try:
        opened = os.fstat(handle)
        return identity(path) == (opened.st_dev, opened.st_ino) and opened.st_size >= size
    except OSError:
        return True


class OpenFile:
    """A file that one exporter appends whole writes to; not for several threads.

    Attributes:
        size: bytes of whole writes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._is_uncut = False  # behind `size` may be something that nobody could drop yet
        self.size = 0

    def _open(self) -> int:
        """Open the file, which is made where there is none, and return its descriptor.

        Raises:
            OSError: it cannot be made, read or written.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # To append: the place to write is the end of the file also after `cut`. No link is followed: in a folder that
        # others write to it may lead anywhere.
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o664)
        return self._file

    def write(self, data: bytes) -> None:
        """Append all of `data` or none; the operating system has it when this returns.

        Raises:
            OSError: nothing was written.
        """
        assert self._file is not None, "it is open"
        if self._is_uncut:
            self.cut(self.size)
        written = 0
        try:
            while written < len(data):
                # The whole is not copied where it is written at once, which is nearly always.
                written += os.write(self._file, data[written:] if written else data)
        except OSError:
            self.cut(self.size)
            raise
        self.size += len(data)

    def cut(self, size: int) -> None:
        """Drop everything after `size` bytes.

        Raises:
            OSError: not now; the next write does it before it appends anything.
        """
        assert self._file is not None, "it is open"
        self.size, self._is_uncut = size, True
        os.ftruncate(self._file, size)
        self._is_uncut = False

    @property
    def is_intact(self) -> bool:
        """Whether the file has its name, and all that was appended."""
        return self._file is None or has_name(self._file, self._path, self.size)

    def sync(self) -> None:
        """Wait until the disk has what was appended."""
        if self._file is not None:
            os.fsync(self._file)

    def close(self) -> None:
        """Close the file; again is fine."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
