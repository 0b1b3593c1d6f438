"""What the service asks of the process that it has for itself."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

__all__ = [
    "allow_open_files",
    "keep_freed_memory",
    "let_training_go_first",
    "look_for_garbage_rarely",
    "most_files",
    "most_files_of_a_service",
    "open_files",
]

_ALLOCATED = 50_000
"""Objects, more than were freed, after which Python looks for cycles among the new ones; usually 700."""

_RESERVED_FILES = 64
"""Of the open files a process may have; what is under way opens files for a moment, such as the journal of a commit."""

_OPEN_MAX = 10_240
"""Of macOS: as many open files as it gives a process whose limit it calls unlimited (setrlimit(2) there)."""

_NICE = 5
"""A third of what a rank gets of a core that both want, and all of one that nobody wants (sched(7)). With 10 it is a
tenth: ranks that never wait would leave the service less than it needs to follow them (ADR 0020)."""


def allow_open_files() -> None:
    """Take as many open files as this user may have: a shell's 1,024 are fewer than the connections of a large job."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in (most, _OPEN_MAX):
        with suppress(OSError, ValueError):  # macOS calls unlimited what it does not give
            resource.setrlimit(resource.RLIMIT_NOFILE, (number, most))
            return


def most_files() -> int:
    """Return how many files and connections this process may plan with: some are kept back for what cannot wait."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _without_reserve(most)


def most_files_of_a_service() -> int:
    """Return the same of a service that this user starts from here: it takes as many as it may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _without_reserve(most)


def _without_reserve(most: int) -> int:
    return sys.maxsize if most == resource.RLIM_INFINITY else most - _RESERVED_FILES


def open_files() -> int:
    """Return how many files and connections are open; more than any limit where there is none left to look with."""
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError as error:
        return sys.maxsize if error.errno == errno.EMFILE else 0


def look_for_garbage_rarely() -> None:
    """Keep Python from looking for cycles all the time: each request allocates a few hundred objects that count.

    With 1,024 ranks that was a tenth of the service's time (`perf record` of `tests.benchmarks --only ranks`).
    """
    # What is left after this stays as long as the service: no later look goes through it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATED, 20, 100)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""


def keep_freed_memory() -> None:
    """Keep up to 64 MiB of memory that is free, instead of giving it back and asking for it anew at each commit.

    A commit builds texts and arrays of megabytes. From the kernel each of their pages is a fault: with 60,000 of them a
    second the service took a fifth fewer spans (`perf stat` of `tests.benchmarks --only throughput`).
    """
    with suppress(AttributeError, OSError):  # another C library than GNU's
        change = ctypes.CDLL(None).mallopt
        change(_MMAP_THRESHOLD, 32 * 2**20)
        change(_TRIM_THRESHOLD, 64 * 2**20)


def let_training_go_first(starter: int) -> None:
    """Be nice to the processes of the job on the same cores: for an embedded service, once its threads have begun.

    Linux shares cores among sessions before it does among their processes (autogroups, sched(7)), and so the session is
    nice, too. Only where both were made for the service: whoever starts it in a shell keeps that as it is.

    Args:
        starter: the process that a job has started: it leads the session that was made for the service.
    """
    if os.getpgrp() != starter or os.getsid(0) != starter:
        return
    with suppress(OSError):
        # The group, since PRIO_PROCESS is one thread on Linux.
        os.setpriority(os.PRIO_PGRP, 0, os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICE))
