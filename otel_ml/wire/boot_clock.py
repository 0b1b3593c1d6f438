"""The clock that nobody sets, the same in all processes of a machine: seconds since this machine was started."""

from __future__ import annotations

import os
import time
from functools import lru_cache
from pathlib import Path

__all__ = ["seconds_since_boot"]

# Linux: time asleep included. Elsewhere the monotonic clock is that of the machine, too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds_since_boot() -> float:
    """Return the seconds since this machine was started, also within a namespace that has a time of its own."""
    return time.clock_gettime(_CLOCK) - _ahead_s(os.getpid())


# A fork may be in another namespace than its parent, so what is known is known of one process.
@lru_cache(maxsize=1)
def _ahead_s(pid: int) -> float:
    """Return by how many seconds the time namespace of process `pid`, this one, is ahead of its machine."""
    own = Path("/proc/self/ns")
    try:
        # The file tells of the namespace of children to come: the process' own, unless it has asked for another.
        if (own / "time").readlink() != (own / "time_for_children").readlink():
            return 0.0
        lines = Path("/proc/self/timens_offsets").read_text().splitlines()
        offsets = {name: int(seconds) + int(ns) / 1e9 for name, seconds, ns in map(str.split, lines)}
        return offsets.get("boottime", 0.0)
    except (OSError, ValueError):  # no Linux, or one without such namespaces
        return 0.0
