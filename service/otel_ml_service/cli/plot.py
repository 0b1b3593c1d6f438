"""Plots in a terminal: lines of braille dots (2 × 4 in a character), and one-line sparks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from otel_ml_exporters.telling_metrics import height as height_between
from otel_ml_service.cli.figures import compact

__all__ = ["plot", "spark"]

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bit of each dot of a braille character, by column and row (Unicode 6.0, U+2800)."""
_BLANK = 0x2800
_BLOCKS = "▁▂▃▄▅▆▇█"


class _Canvas:
    """Dots in a rectangle; (0, 0) is the upper left one."""

    def __init__(self, columns: int, rows: int) -> None:
        self.width, self.height = columns * 2, rows * 4
        self._cells = [[_BLANK] * columns for _ in range(rows)]

    def dot(self, x: int, y: int) -> None:
        self._cells[y // 4][x // 2] |= _DOTS[x % 2][y % 4]

    def line(self, x0: int, y0: int, x1: int, y1: int) -> None:
        # One dot for each column or row of the longer side, so that the line has no holes.
        count = max(abs(x1 - x0), abs(y1 - y0), 1)
        for i in range(count + 1):
            self.dot(x0 + round((x1 - x0) * i / count), y0 + round((y1 - y0) * i / count))

    def lines(self) -> list[str]:
        return ["".join(chr(cell) for cell in row) for row in self._cells]


def plot(
    steps: Sequence[float], values: Sequence[float], *, width: int = 80, height: int = 10, log: bool = False
) -> list[str]:
    r"""Return the lines of a plot of `values` over `steps`, with labeled axes.

    A value that is not finite (or, with `log`, not positive) is a gap. Nothing to draw gives one line saying so.

    Examples:
        >>> print("\n".join(plot([0, 1, 2, 3], [0.0, 1.0, 2.0, 3.0], width=20, height=2)))
        3 ┤⠀⠀⠀⠀⠀⠀⠀⢀⣀⠤⠤⠒⠒⠊⠉
        0 ┤⣀⡠⠤⠤⠒⠒⠉⠁⠀⠀⠀⠀⠀⠀⠀
          └───────────────
           0             3
    """
    shown = [(x, _scaled(y, log)) for x, y in zip(steps, values, strict=True)]
    finite = [(x, y) for x, y in shown if math.isfinite(y)]
    if not finite:
        return ["no finite value to draw"]
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    # Of all steps, also those of gaps: the curve does not move where a value becomes finite.
    left, right = min(x for x, _ in shown), max(x for x, _ in shown)
    drawable = [y for y, (_, scaled) in zip(values, shown, strict=True) if math.isfinite(scaled)]
    labels = _labels(min(drawable), max(drawable), height, log)
    margin = max(map(len, labels))
    # 4: the ` ┤` behind the labels, and two columns that stay free at the right.
    canvas = _Canvas(max(width - margin - 4, 8), height)

    def place(x: float, y: float) -> tuple[int, int]:
        across = (x - left) / (right - left) if right > left else 0.0
        # A level line is in the middle.
        up = height_between(y, low, high) if high > low else 0.5
        return round(across * (canvas.width - 1)), round((1 - up) * (canvas.height - 1))

    # A line goes from value to value; behind a gap it begins anew, with a single dot.
    previous: tuple[int, int] | None = None
    for x, y in shown:
        here = place(x, y) if math.isfinite(y) else None
        if here is not None:
            canvas.line(*(previous or here), *here)
        previous = here
    drawn = [f"{label:>{margin}} ┤{line}" for label, line in zip(labels, canvas.lines(), strict=True)]
    return [*drawn, *_foot(margin, canvas.width // 2, compact(left), compact(right))]


def _scaled(value: float, log: bool) -> float:
    if not log:
        return value
    return math.log10(value) if value > 0 and math.isfinite(value) else math.nan


def _labels(low: float, high: float, height: int, log: bool) -> list[str]:
    labels = [""] * height
    labels[0], labels[-1] = compact_label(high), compact_label(low)
    if height >= 5:
        # Halves and roots first: the sum, and the product, of the largest doubles is infinite.
        labels[height // 2] = compact_label(math.sqrt(low) * math.sqrt(high) if log else low / 2 + high / 2)
    return labels


def compact_label(value: float) -> str:
    """Return an axis label of few characters.

    Examples:
        >>> compact_label(0.0301234), compact_label(12.0)
        ('0.0301', '12')
    """
    return f"{value:.3g}"


def _foot(margin: int, columns: int, left: str, right: str) -> list[str]:
    gap = max(columns - len(left) - len(right), 1)
    return [" " * (margin + 1) + "└" + "─" * columns, " " * (margin + 2) + left + " " * gap + right]


def spark(values: Sequence[float], width: int = 24) -> str:
    """Return `values` as one line of blocks; the last value of each slice counts, a gap is a space.

    Examples:
        >>> spark([1, 2, 3, 4, 5, 6, 7, 8])
        '▁▂▃▄▅▆▇█'
    """
    count = len(values)
    if count > width:
        # So the newest value is always the last block.
        values = [values[(i + 1) * count // width - 1] for i in range(width)]
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return " " * len(values)
    low, high = min(finite), max(finite)
    top = len(_BLOCKS) - 1

    def block(value: float) -> str:
        if not math.isfinite(value):
            return " "
        return _BLOCKS[round(height_between(value, low, high) * top)]

    return "".join(map(block, values))
