"""The end of W&B's own process: one that lost rows never writes them, and keeps the run in use."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["kill_core"]


def kill_core(wandb: Any) -> None:
    """Kill this process' `wandb-core`, so that the next `wandb.init` starts another one.

    It serves every W&B run of this process; the others notice and go on from what is stored, too.
    """
    for pid in _children():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "wandb-core":
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(Exception, SystemExit):  # it exits with the code of its process: -9
        wandb.teardown()


def _children() -> Iterator[int]:
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, path.read_text(encoding="ascii").split())
