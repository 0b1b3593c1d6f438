"""Steps before those that are looked at: what is made once is made in them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import otel_ml
from tests.waiting import eventually

__all__ = ["WARM", "warmed"]

WARM = 4


def warmed(step: Callable[[], object], steps: int = WARM) -> None:
    """Do a step until it is like the one before: names are known, memory is taken, kernels are compiled."""
    step()
    eventually(lambda: not any("compile" in thread.name for thread in threading.enumerate()), timeout=100)
    for _ in range(steps):
        step()
        otel_ml.flush(20)
