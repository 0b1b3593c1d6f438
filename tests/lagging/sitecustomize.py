"""Every thread but the main one is late, at random, in each Python process that has this folder in its PYTHONPATH.

What a test reads without waiting for it is not there yet then: on a busy machine only, otherwise. `make races` runs the
tests so.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
from typing import Any

LATE_S = 0.06
"""At most, after half of all waits: as long as a thread that is due waits for a core of a busy machine."""

_chance = random.Random(f"{os.environ.get('LAG_SEED', '1')} {os.getpid()}")
_run, _wait = threading.Thread.run, threading.Condition.wait


def lag() -> None:
    if threading.current_thread() is not threading.main_thread() and _chance.random() < 0.5:
        time.sleep(_chance.random() * LATE_S)


def run(thread: threading.Thread) -> None:
    lag()
    _run(thread)


def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
    done = _wait(condition, timeout)
    lag()
    return done


class LateQueue(queue.SimpleQueue[Any]):
    """One whose takers are late."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        found = super().get(block, timeout)
        lag()
        return found


threading.Thread.run = run  # type: ignore[method-assign,assignment]
threading.Condition.wait = wait  # type: ignore[method-assign,assignment]
queue.SimpleQueue = LateQueue  # type: ignore[misc]
