"""Whether a file that is kept open still has its name: others may delete, move, replace or cut it meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["has_name", "identity"]


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
