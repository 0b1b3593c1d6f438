"""Cold caches: between two steps of training other work uses them, so a tight loop measures what nobody gets."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.benchmarks.machine import last_level_cache

__all__ = ["evict"]


def evict() -> None:
    """Touch more memory than the last-level cache holds."""
    buffer = _buffer()
    buffer[::8] += 1  # one double of each line of 64 bytes


@cache
def _buffer() -> Any:
    import numpy as np

    return np.zeros(last_level_cache() * 5 // 4 // 8)
