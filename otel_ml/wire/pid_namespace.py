"""Which processes share their numbers: those of one boot and one PID namespace (a container has one of its own)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_in_container", "pid_namespace"]

_OF_THE_MACHINE = 0xEFFFFFFC
"""Number of the PID namespace of a machine (PROC_PID_INIT_INO)."""


def pid_namespace() -> str:
    """Return what tells the PID namespace of this process from all others of this boot; "" where there are none."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:  # macOS
        return ""


def is_in_container() -> bool:
    """Whether this process is in another PID namespace than that of its machine, which has a process 1 of its own."""
    return pid_namespace() not in {"", str(_OF_THE_MACHINE)}
