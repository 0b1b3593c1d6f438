"""What each stage of a program's start added to its memory: one growing table."""

from __future__ import annotations

import time

from otel_ml._internal.events.event_calls import log_table
from otel_ml.diagnostics.device_memory import held_by_torch
from otel_ml.diagnostics.hardware.process_memory import process_memory
from otel_ml.never_raises import never_raises

__all__ = ["MemoryStages"]

_COLUMNS = ("stage", "seconds", "rss", "rss added", "device allocated", "device added")


class MemoryStages:
    """Marks the stages of a program: `imports`, `model`, `optimizer`, `data`.

    The table has, for each stage, the seconds it took, and in bytes what the process and torch's allocator hold at its
    end and what the stage added; a field that is not known is empty.

    Args:
        name: of the table.
    """

    def __init__(self, name: str = "memory/stages") -> None:
        self._name = name
        self._rows: list[tuple[str, float, int | None, int | None, int | None, int | None]] = []
        self._since = time.monotonic()
        self._rss, self._device = _rss(), _allocated()

    @never_raises
    def mark(self, stage: str) -> None:
        """Note that `stage` has ended, and record the table with it."""
        now, rss, device = time.monotonic(), _rss(), _allocated()
        row = (stage, now - self._since, rss, _added(rss, self._rss), device, _added(device, self._device))
        self._rows.append(row)
        self._since, self._rss, self._device = now, rss, device
        log_table(self._name, list(self._rows), list(_COLUMNS))


def _rss() -> int | None:
    memory = process_memory()
    return None if memory is None else memory.rss


def _allocated() -> int | None:
    held = held_by_torch()
    return sum(allocated for allocated, _ in held.values()) if held else None


def _added(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before
