"""Which processes share their numbers: those of one boot and one PID namespace (a container has one of its own)."""

from __future__ import annotations

from pathlib import Path

__all__ = ["pid_namespace"]


def pid_namespace() -> str:
    """Return what tells the PID namespace of this process from all others of this boot; "" where there are none."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:  # macOS
        return ""
