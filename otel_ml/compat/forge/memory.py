"""Device memory of a traced block: what it left behind, and its peak."""

from __future__ import annotations

import sys
from typing import Any

from otel_ml.compat.forge.metric import Reduce
from otel_ml.compat.forge.recording import record_metric
from otel_ml.once import say

__all__ = ["MemorySpan"]

GIB = 1024**3

_TRACKED_BY: list[str] = []
"""Prefix of the tracer that tracks: the peak is one for the process, so only the outermost can."""


class MemorySpan:
    """From `begin()` to `end()`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._before: int | None = None

    def begin(self) -> None:
        """Note what is allocated, and start the peak anew; nothing inside another tracked block."""
        cuda = _cuda()
        if cuda is None:
            say(
                "compat-forge",
                f"Tracer {self._prefix!r}: there is no CUDA device, so no memory is recorded. "
                "Leave track_memory out on machines without one.",
            )
        elif _TRACKED_BY:
            say(
                "compat-forge",
                f"Tracer {self._prefix!r}: memory is tracked by {_TRACKED_BY[0]!r} around it already. "
                "The peak is one for the process: only the outer one records memory.",
            )
        else:
            _TRACKED_BY.append(self._prefix)
            self._before = cuda.memory_allocated()
            cuda.reset_peak_memory_stats()

    def end(self) -> None:
        """Record the difference and the peak, in GiB."""
        before, self._before = self._before, None
        cuda = _cuda()
        if before is None or cuda is None:
            return
        _TRACKED_BY.clear()
        record_metric(f"{self._prefix}/memory_delta_end_start_avg_gb", (cuda.memory_allocated() - before) / GIB)
        record_metric(f"{self._prefix}/memory_peak_max_gb", cuda.max_memory_allocated() / GIB, Reduce.MAX)


def _cuda() -> Any | None:
    torch: Any = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None
