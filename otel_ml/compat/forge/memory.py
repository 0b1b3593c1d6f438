"""Device memory of a traced block: what it left behind, and its peak."""

from __future__ import annotations

import sys
from typing import Any

from otel_ml.compat.forge.metric import Reduce
from otel_ml.compat.forge.recording import record_metric
from otel_ml.diagnostics.device_memory import current_memory, reset_peak
from otel_ml.never_raises import never_raises
from otel_ml.warn_once import say

__all__ = ["MemorySpan"]

GIB = 1024**3

_TRACKED_BY: list[str] = []
"""Prefix of the tracer that tracks: the peak is one for the process, so only the outermost can."""


class MemorySpan:
    """From `begin()` to `end()`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._before: int | None = None

    @never_raises
    def begin(self) -> None:
        """Note what is allocated, and start the peak anew; nothing inside another tracked block."""
        if not _is_available():
            say(
                "compat-forge",
                f"Tracer {self._prefix!r}: there is no CUDA device, so no memory is recorded. "
                "Leave track_memory out on machines without one.",
            )
        elif _TRACKED_BY:
            say(
                "compat-forge",
                f"Nested memory tracking detected in {self._prefix}: {_TRACKED_BY[0]!r} around it tracks already. "
                "The peak is one for the process: only the outer one records memory.",
            )
        else:
            held = current_memory()
            self._before = 0 if held is None else held.allocated  # the block may be the first to use the device
            _TRACKED_BY.append(self._prefix)
            reset_peak()

    @never_raises
    def end(self) -> None:
        """Record the difference and the peak, in GiB."""
        before, self._before = self._before, None
        if before is None:
            return
        _TRACKED_BY.clear()
        held = current_memory()
        if held is not None:
            record_metric(f"{self._prefix}/memory_delta_end_start_avg_gb", (held.allocated - before) / GIB)
            record_metric(f"{self._prefix}/memory_peak_max_gb", held.max_allocated / GIB, Reduce.MAX)


def _is_available() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())
