"""Resident and virtual memory of this process."""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["ProcessMemory", "process_memory"]


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


class ProcessMemory(NamedTuple):
    """Bytes."""

    rss: int
    vms: int


def process_memory() -> ProcessMemory | None:
    """Return what the kernel says, or None where it does not (no `/proc`, and no psutil).

    Examples:
        >>> memory = process_memory()
        >>> memory is None or 0 < memory.rss < memory.vms
        True
    """
    try:
        # Twice in each operation: without a file object it takes less time. It is not kept open: a program that becomes
        # a daemon closes what it does not know.
        number = os.open("/proc/self/statm", os.O_RDONLY)
        try:
            virtual, resident, _ = os.read(number, 128).split(None, 2)
        finally:
            os.close(number)
        return ProcessMemory(int(resident) * _PAGE, int(virtual) * _PAGE)
    except (OSError, ValueError):
        return _by_psutil()


def _by_psutil() -> ProcessMemory | None:
    try:
        import psutil

        found = psutil.Process().memory_info()
    except Exception:  # noqa: BLE001 - not installed, or not told on this system
        return None
    return ProcessMemory(int(found.rss), int(found.vms))
