"""A table that is drawn over itself while the run goes on: for a person at a terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from otel_ml.printable import printable
from otel_ml_exporters.backends.console.line import step_label
from otel_ml_exporters.backends.console.remark import Remarks
from otel_ml_exporters.records import StepRecord
from otel_ml_exporters.telling_metrics import height, interesting, significant

__all__ = ["LiveTable", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"
_TREND = 32
"""Steps in the small curve beside a metric."""

_BESIDE_NAME, _SHORTEST_NAME = _TREND + 22, 12
"""Columns of a value of up to 17 digits, of a curve, and between these; and those that a name has at the least."""

_FRAME = 6
"""Lines of the table that are not metrics."""


def sparkline(values: Sequence[float]) -> str:
    """Return a curve one line high; what is not finite is a gap.

    Examples:
        >>> sparkline([1.0, 2.0, float("nan"), 8.0])
        '▁▂ █'
    """
    # Not true of NaN, either.
    finite = [value for value in values if abs(value) < float("inf")]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    steps = len(_BARS) - 1
    return "".join(
        " " if not abs(value) < float("inf") else _BARS[round(height(value, low, high) * steps)] for value in values
    )


class LiveTable:
    """Shows the main metrics of every role and axis, as many as the terminal is high."""

    def __init__(self, stream: TextIO, *, title: str, width: int | None, digits: int, patterns: Sequence[str]) -> None:
        self._title = title
        self._digits = digits
        self._patterns = patterns
        self._recent: dict[str, deque[float]] = {}
        self._places: dict[tuple[str, str], str] = {}
        self._remarks = Remarks()
        self._last: list[str] = []
        self._console = Console(file=stream, width=width)
        # Drawn once a batch: rich's own thread would draw the same table four times a second.
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()

    def step(self, record: StepRecord) -> None:
        """Take a step in; it is seen after `flush`."""
        # A correction is of an older step: in the curve it would be the point of the newest one.
        if record.amendment:
            return
        self._places[record.role, record.axis] = step_label(record.role, record.axis, record.step)
        self._last = self._remarks.of(record)
        for name, value in record.values.items():
            self._recent.setdefault(name, deque(maxlen=_TREND)).append(value)

    def text(self, line: str) -> None:
        """Write a line above the table."""
        self._live.console.print(Text(printable(line)))

    def flush(self) -> None:
        """Draw the table."""
        self._live.update(self._table(), refresh=True)

    def close(self) -> None:
        """Leave the last state of the table on the screen."""
        self._live.stop()

    def _table(self) -> Table:
        state = " · ".join([*self._places.values(), *self._last])
        table = Table(title=_plain(self._title), caption=_plain(state), title_justify="left", caption_justify="left")
        table.add_column("metric", no_wrap=True, style="bold")
        table.add_column("last", justify="right", no_wrap=True)
        table.add_column("trend", no_wrap=True, style="cyan")
        names = interesting(self._recent, self._patterns)
        # One metric at least, however low the terminal is.
        for name in names[: max(1, self._console.size.height - _FRAME)]:
            recent = self._recent[name]
            label = Text(printable(name))
            # Where a name leaves no room, rich would cut all columns alike, and the value with them.
            label.truncate(max(self._console.size.width - _BESIDE_NAME, _SHORTEST_NAME), overflow="ellipsis")
            table.add_row(label, significant(recent[-1], self._digits), sparkline(recent))
        return table


def _plain(text: str) -> Text:
    """Return what was sent, not what it says as markup."""
    return Text(printable(text))
