"""From the clock of timers to the epoch: the same for all spans of a process, until the host's clock is set."""

from __future__ import annotations

import time

__all__ = ["wall_offset"]

_READINGS = 3
_SLACK_NS = 1_000
"""What either clock may be off by itself: its resolution, and rounding."""


def wall_offset(before: int | None = None) -> int:
    """Return what is to be added to `perf_counter_ns()`: `before` as long as the clocks do not contradict it.

    Who is interrupted between two clocks reads them apart. A span is often collected later than what is inside of it:
    with an offset of its own it would begin after that, or end before it.
    """
    begin_ns, now_ns, end_ns = min((_reading() for _ in range(_READINGS)), key=lambda one: one[2] - one[0])
    # The epoch's clock was read between the two others: the offset is in between these.
    if before is not None and now_ns - end_ns - _SLACK_NS <= before <= now_ns - begin_ns + _SLACK_NS:
        return before
    return now_ns - (begin_ns + end_ns) // 2


def _reading() -> tuple[int, int, int]:
    return time.perf_counter_ns(), time.time_ns(), time.perf_counter_ns()
