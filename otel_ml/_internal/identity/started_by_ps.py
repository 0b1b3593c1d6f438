"""When a process started, as `ps` tells it: all that there is on a system without /proc, as macOS."""

from __future__ import annotations

import os
import subprocess
from calendar import timegm

__all__ = ["started_ns_by_ps"]


def started_ns_by_ps(pid: int) -> int:
    """Return the time at which a process started, the same for all who ask; 0 where there is none."""
    try:
        from email.utils import parsedate  # a megabyte that systems with /proc have no use for

        shown = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=2,
            check=True,
            # English names of months, and a time that no zone of this process, or of the system, shifts.
            env={"LC_ALL": "C", "TZ": "UTC0", "PATH": os.environ.get("PATH", "")},
        ).stdout
    except (ImportError, OSError, ValueError, subprocess.SubprocessError):
        return 0
    # Not strptime(), which reads the names in the language that the program has set.
    moment = parsedate(shown)
    return timegm(moment) * 10**9 if moment is not None else 0
