"""Descriptors of ours are none of the standard ones, and what a program opens under their numbers is not ours."""

from __future__ import annotations

import contextlib
import fcntl
import os

__all__ = ["OwnDescriptor", "above_standard"]

_FIRST = 3
"""0 to 2 are standard input, output and error: a program that has closed one goes on writing to its number."""


class OwnDescriptor:
    """A descriptor, and the file or socket that it was opened for.

    A program may close what is open, and open a file of its own under the same number (daemons do the first). So the
    descriptor is asked what it is: what is ours is never written to another file, and nobody else's is closed.

    Attributes:
        number: of the descriptor.
        identity: device and inode of what it was opened for.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.identity = _identity(number)

    def is_ours(self) -> bool:
        """Whether it still is what it was opened for."""
        with contextlib.suppress(OSError):
            return _identity(self.number) == self.identity
        return False

    def close(self) -> None:
        """Close it, unless it is somebody else's by now."""
        if self.is_ours():
            os.close(self.number)
        # So that a second `close()` finds no file under the number, whoever has it by then.
        self.number = -1


def _identity(number: int) -> tuple[int, int]:
    found = os.fstat(number)
    return found.st_dev, found.st_ino


def above_standard(descriptor: int) -> int:
    """Return the same open file under a number of which no print, traceback or C library thinks that it is its own.

    Where a program has closed its standard error, the next file that is opened gets its number, and its messages.
    """
    if descriptor >= _FIRST:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    finally:
        # Also where no other number is free: under this one it would get what the program prints.
        os.close(descriptor)
