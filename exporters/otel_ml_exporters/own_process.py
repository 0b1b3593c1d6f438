"""What the service asks of the process that it has for itself."""

from __future__ import annotations

import gc
import resource
from contextlib import suppress

__all__ = ["allow_open_files", "look_for_garbage_rarely"]

_ALLOCATED = 50_000
"""Objects, more than were freed, after which Python looks for cycles among the new ones; usually 700."""


def allow_open_files() -> None:
    """Take as many open files as this user may have: a shell's 1,024 are fewer than the connections of a large job."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS calls unlimited what it does not give
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def look_for_garbage_rarely() -> None:
    """Keep Python from looking for cycles all the time: each request allocates a few hundred objects that count.

    With 1,024 ranks that was a tenth of the service's time (`perf record` of `tests.benchmarks --only ranks`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATED, 20, 100)
