"""The clock that nobody sets: seconds since this machine was started."""

from __future__ import annotations

import time

__all__ = ["seconds_since_boot"]

# Linux: time asleep included, the same in all processes. Elsewhere the monotonic clock is that of the machine, too.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def seconds_since_boot() -> float:
    """Return the seconds since this machine was started."""
    return time.clock_gettime(_CLOCK)
