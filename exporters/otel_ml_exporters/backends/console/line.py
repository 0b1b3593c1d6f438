"""One line a step, in columns that stay where they are: for log files, pipes and `grep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

from otel_ml_exporters.backends.console.choice import interesting, significant
from otel_ml_exporters.records import StepRecord

__all__ = ["Lines", "place"]

_GAP = "  "
_VALUE_WIDTH = 6
"""A value's column at first (`0.5000`); it grows and never shrinks."""


def place(role: str, axis: str, step: int) -> str:
    """Return where a record stands.

    Examples:
        >>> place("trainer", "step", 120), place("generator", "rollout", 3), place("trainer", "time", 30)
        ('step 120', 'generator rollout 3', 'time 30 s')
    """
    named = "" if role == "trainer" or role.startswith("unknown_service") else f"{role} "
    return f"{named}{axis} {step}{' s' if axis == 'time' else ''}"


class Lines:
    """Writes lines of at most `width` characters to `stream`."""

    def __init__(self, stream: TextIO, *, width: int, digits: int, patterns: Sequence[str]) -> None:
        self._stream = stream
        self._width = width
        self._digits = digits
        self._patterns = patterns
        self._columns: dict[tuple[str, str], dict[str, int]] = {}
        self._place_width = 0

    def step(self, record: StepRecord) -> None:
        """Write a step: where it is, its main metrics, what is special about it."""
        where = place(record.role, record.axis, record.step)
        self._place_width = max(self._place_width, len(where))
        remark = _remark(record)
        room = self._width - self._place_width - (len(_GAP + remark) if remark else 0)
        cells = self._cells(self._columns.setdefault((record.role, record.axis), {}), record.values, room)
        self.text(_GAP.join([where.ljust(self._place_width), *cells, *([remark] if remark else [])]))

    def text(self, line: str) -> None:
        """Write a line as it is, cut to the width."""
        line = line.rstrip()
        self._stream.write(line if len(line) <= self._width else f"{line[: self._width - 1]}…")
        self._stream.write("\n")

    def flush(self) -> None:
        """Hand what was written to whoever reads it."""
        self._stream.flush()

    def _cells(self, columns: dict[str, int], values: Mapping[str, float], room: int) -> list[str]:
        """Return a cell a column, blank where the step lacks it; new metrics get one while there is room."""
        written = {name: significant(value, self._digits) for name, value in values.items() if name in columns}
        taken = 0
        for name, text in written.items():
            columns[name] = max(columns[name], len(text))
        taken = sum(len(name) + 1 + width + len(_GAP) for name, width in columns.items())
        for name in interesting((name for name in values if name not in columns), self._patterns):
            text = significant(values[name], self._digits)
            taken += len(name) + 1 + max(_VALUE_WIDTH, len(text)) + len(_GAP)
            if taken > room:
                break
            columns[name] = max(_VALUE_WIDTH, len(text))
            written[name] = text
        return [
            f"{name} {written[name]:>{width}}" if name in written else " " * (len(name) + 1 + width)
            for name, width in columns.items()
        ]


def _remark(record: StepRecord) -> str:
    remarks = []
    if record.amendment:
        remarks.append("amended")
    if record.writers_missing:
        remarks.append(f"{record.writers_missing} writer{'s' * (record.writers_missing > 1)} missing")
    return f"({', '.join(remarks)})" if remarks else ""
