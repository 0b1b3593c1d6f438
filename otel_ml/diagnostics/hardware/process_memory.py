"""Resident and virtual memory of this process."""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["ProcessMemory", "process_memory"]


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
        # Twice in each operation: without a Path, a buffer and a decoder it takes a quarter of the time.
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123
            virtual, resident = file.read(128).split()[:2]
        page = os.sysconf("SC_PAGE_SIZE")
        return ProcessMemory(int(resident) * page, int(virtual) * page)
    except (OSError, ValueError):
        return _by_psutil()


def _by_psutil() -> ProcessMemory | None:
    try:
        import psutil

        found = psutil.Process().memory_info()
    except Exception:  # noqa: BLE001 - not installed, or not told on this system
        return None
    return ProcessMemory(int(found.rss), int(found.vms))
