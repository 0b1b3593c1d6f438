"""Files about a launch, or a process, that are of no use once who has started it has ended."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from otel_ml._internal.identity.launcher_process import Process, is_alive
from otel_ml.wire.pid_namespace import pid_namespace

__all__ = ["SUFFIX", "started_by", "sweep"]

SUFFIX = ".launch.json"
"""How their names end."""


def started_by(process: Process) -> dict[str, Any]:
    """Return what such a file says of who has started it: with that process it may be removed."""
    return {"started_by": process, "pid_namespace": pid_namespace()}


def sweep(folder: Path) -> None:
    """Remove what is over: a rank may look for a file until the last of its launch has ended.

    Containers that share the folder number their processes anew: each removes its own.
    """
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads(path.read_text())
            pid, started = found["started_by"]
            if found["pid_namespace"] == pid_namespace() and not is_alive((pid, started)):
                path.unlink()
