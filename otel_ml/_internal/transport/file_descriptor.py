"""Descriptors of ours are none of the standard ones."""

from __future__ import annotations

import fcntl
import os

__all__ = ["above_standard"]

_FIRST = 3
"""0 to 2 are standard input, output and error: a program that has closed one goes on writing to its number."""


def above_standard(descriptor: int) -> int:
    """Return the same open file under a number of which no print, traceback or C library thinks that it is its own.

    Where a program has closed its standard error, the next file that is opened gets its number, and its messages.
    """
    if descriptor >= _FIRST:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST)
    finally:
        os.close(descriptor)
