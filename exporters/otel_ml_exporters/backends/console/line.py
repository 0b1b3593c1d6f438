"""One line a step, in columns that stay where they are: for log files, pipes and `grep`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from otel_ml.printable import printable
from otel_ml.wire.published_name import is_own
from otel_ml_exporters.backends.console.remark import Remarks
from otel_ml_exporters.records import StepRecord
from otel_ml_exporters.telling_metrics import interesting, significant

__all__ = ["Lines", "step_label"]

_GAP = "  "


def step_label(role: str, axis: str, step: int) -> str:
    """Return the axis and step of a record as text, with its role where it is not the trainer.

    Examples:
        >>> step_label("trainer", "step", 120), step_label("generator", "rollout", 3), step_label("trainer", "time", 30)
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
        # By role and axis: name → width of its values, in the order in which the names came.
        self._columns: dict[tuple[str, str], dict[str, int]] = {}
        self._remarks = Remarks()
        self._place_width = 0
        self._least = digits + len("0.0")  # 0.01234: a column grows and never shrinks

    def step(self, record: StepRecord) -> None:
        """Write a step: where it is, its main metrics, what is special about it; of otel_ml's own account nothing."""
        # A row without any value is written all the same: that writers are missing may be all that it says.
        if record.values and all(map(is_own, record.values)):
            return
        where = step_label(record.role, record.axis, record.step)
        # It only grows, so that the columns of lines written later stay below each other.
        self._place_width = max(self._place_width, len(where))
        remarks = self._remarks.of(record)
        remark = f"({', '.join(remarks)})" if remarks else ""
        space = self._width - self._place_width - (len(_GAP + remark) if remark else 0)
        cells = self._cells(self._columns.setdefault((record.role, record.axis), {}), record.values, space)
        self.text(_GAP.join([where.ljust(self._place_width), *cells, *([remark] if remark else [])]))

    def text(self, line: str) -> None:
        """Write a line as it is, cut to the width."""
        line = printable(line.rstrip())
        self._stream.write(line if len(line) <= self._width else f"{line[: self._width - 1]}…")
        self._stream.write("\n")

    def flush(self) -> None:
        """Hand what was written to whoever reads it."""
        self._stream.flush()

    def _cells(self, columns: dict[str, int], values: Mapping[str, float], space: int) -> Iterator[str]:
        """Yield a cell a column, blank where the step lacks it; new metrics get one while there is room."""
        # A metric that has a column keeps it, also where this step lacks it: `grep` and `cut` find it in the same
        # place.
        taken = sum(map(_cell_width, columns, columns.values()))
        for name in [name for name in interesting(values, self._patterns) if name not in columns]:
            taken += _cell_width(name, self._least)
            if taken > space:
                # Not the next one: a shorter name that tells less would take the room.
                break
            columns[name] = self._least
        for name, width in columns.items():
            text = significant(values[name], self._digits) if name in values else ""
            columns[name] = max(width, len(text))
            space -= _cell_width(name, columns[name])
            if space < 0:  # a value has become longer than the line has room for
                return
            cell = f"{name} {text:>{columns[name]}}"
            yield cell if text else " " * len(cell)


def _cell_width(name: str, value_width: int) -> int:
    return len(_GAP) + len(name) + 1 + value_width
