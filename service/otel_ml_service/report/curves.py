"""Curves as SVG: what a person sees, and the numbers behind it for the pointer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np

from otel_ml.quantities import quantity
from otel_ml.wire.attributes import TIME_AXIS
from otel_ml_service.findings.units import unit_of
from otel_ml_service.report.markup import Markup, chart_number, joined, script_data, tag
from otel_ml_service.stored_runs.run_history import Series, ascending

__all__ = ["COLORS", "Curve", "chart", "last_value", "numbers", "shell", "strip", "strip_numbers", "thinned"]

WIDTH, HEIGHT = 340, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 8, 8, 20
_POINTS = 300
"""Points of a curve that is drawn; of more, the lowest and highest of each stretch are."""

COLORS = 6
"""Classes `c0` … `c5` of the style sheet."""


class Curve(NamedTuple):
    """A line of a chart."""

    label: str
    series: Series


def thinned(series: Series, most: int = _POINTS) -> list[tuple[int, float]]:
    """Return at most about `most` points that look the same: of each stretch the lowest and the highest.

    Examples:
        >>> thinned({step: float(step == 5) for step in range(1000)}, 10)[1]
        (5, 1.0)
    """
    if len(series) <= most:
        return list(series.items())
    points = list(series), list(series.values())
    stretch = math.ceil(len(series) * 2 / most)
    values = np.full(math.ceil(len(series) / stretch) * stretch, np.nan)
    values[: len(series)] = np.fromiter(points[1], np.float64, len(series))
    parts = values.reshape(-1, stretch)  # stretches × points, the last one filled up with NaN
    finite = np.isfinite(parts)
    # Of a stretch without a finite value both are its first point.
    lowest = np.where(finite, parts, np.inf).argmin(axis=1)
    highest = np.where(finite, parts, -np.inf).argmax(axis=1)
    begin = np.arange(len(parts)) * stretch
    # Sorted, and once where lowest and highest are the same point.
    kept = np.unique(np.concatenate([begin + lowest, begin + highest])).tolist()
    return [(points[0][place], points[1][place]) for place in kept]


def chart(title: str, axis: str, curves: Sequence[Curve]) -> Markup:
    """Return a figure with one or several curves over an axis; gaps where a value is NaN or infinite, marked below."""
    unit = unit_of(title)
    curves = [Curve(curve.label, ascending(curve.series)) for curve in curves]
    drawn = [thinned(curve.series) for curve in curves]
    holes = sorted({step for curve in curves for step in _holes(curve.series)})
    said = [_said(unit, curves), f"{len(holes):,} not finite" if holes else ""]
    caption = _caption(title, " · ".join(filter(None, said)))
    finite = [value for found in drawn for _, value in found if math.isfinite(value)]
    if not finite:
        return tag("figure", caption, tag("p", "no finite value", class_="quiet"), class_="chart")
    every = [list(curve.series) for curve in curves if curve.series]  # ascending
    frame = _Frame.of([end for steps in every for end in (steps[0], steps[-1])], finite)
    lines = [line for number, found in enumerate(drawn) for line in frame.lines(found, _look(number))]
    grid = tag("path", d=f"M{_LEFT} {_TOP}V{HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}", class_="axis")
    marks = [tag("path", d=frame.marks([step for step, _ in thinned(dict.fromkeys(holes, 0.0))]), class_="hole")]
    names = [curve.label for curve in curves]
    shown = {"lines": _lines(names, drawn), "axis": axis, "unit": unit}
    picture = tag(
        "svg", grid, *lines, *(marks if holes else ()), *frame.labels(axis, unit),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img",
        aria_label=f"{title} over {axis}", data_curves=script_data(shown),
    )  # fmt: skip
    return tag("figure", caption, picture, _legend(names), class_="chart", tabindex=0)


def _holes(series: Series) -> Iterable[int]:
    """Return the steps at which a value is NaN or infinite."""
    # Nearly all series are finite. A sum that overflows is looked at value by value, and has none either.
    if math.isfinite(sum(series.values())):
        return ()
    return (step for step, value in series.items() if not math.isfinite(value))


def strip(title: str, axis: str, series: Series) -> Markup:
    """Return a figure of which rank it was at each step: a row of colors, no line."""
    shown = strip_numbers(title, axis, series)
    caption = _caption(title, str(shown["said"]))
    return tag("figure", caption, class_="chart short", tabindex=0, data_shown=script_data(shown))


def strip_numbers(title: str, axis: str, series: Series) -> dict[str, object]:
    """Return the steps at which another rank came, and the last step."""
    points = [(step, value) for step, value in sorted(series.items()) if math.isfinite(value)]
    # NaN is unlike anything, so the first point is a change.
    changes = [point for before, point in pairwise([(0, math.nan), *points]) if before[1] != point[1]]
    # The last point, too: up to there the last rank was the one.
    kept = dict([*changes[-_CHANGES:], *points[-1:]])
    often = Counter(int(value) for _, value in points).most_common(1)
    said = f"mostly rank {often[0][0]}" if often else ""
    lines = _lines([title], [list(kept.items())])
    return {"lines": lines, "axis": axis, "unit": "", "kind": "strip", "from": None, "said": said}


_CHANGES = 2_000
"""Newest changes from one rank to another that a strip has."""


def shell(key: str, title: str, labels: Sequence[str], *, is_strip: bool = False) -> Markup:
    """Return the figure of a chart whose numbers are asked for when it comes into view."""
    look = "chart short" if is_strip else "chart"
    return tag("figure", _caption(title, ""), _legend(labels), class_=look, tabindex=0, data_chart=key)


def numbers(title: str, axis: str, curves: Sequence[Curve], after: int | None = None) -> dict[str, object]:
    """Return what a chart draws of curves, for the page: all of it, or what came after a step.

    Each chart in view is asked for each second, so what is new of a long run may cost no more than that. `holes`, how
    many values are not finite, is therefore of these alone, and the page adds them up.
    """
    unit = unit_of(title)
    new = [_after(curve.series, after) for curve in curves]
    newest = [Curve(curve.label, found or curve.series) for curve, found in zip(curves, new, strict=True)]
    return {
        "lines": _lines([curve.label for curve in curves], [thinned(found, 4 * _POINTS) for found in new], after),
        "axis": axis, "unit": unit, "from": after, "said": _said(unit, newest),
        "holes": sum(1 for found in new for _ in _holes(found)),
    }  # fmt: skip


def _after(series: Series, step: int | None) -> Series:
    if step is None:
        return ascending(series)
    # From the end: of a long run few are new. Where an older step came late, the page is given all of it anew.
    new = takewhile(lambda point: point[0] > step, reversed(series.items()))  # type: ignore[call-overload]
    return dict(reversed(list(new)))


def _said(unit: str, curves: Sequence[Curve]) -> str:
    # Of several curves the legend has names, and a value beside one title would be anybody's.
    only = curves[0].series if len(curves) == 1 else {}
    return _quantity(last_value(only), unit) if only else ""


def last_value(series: Series) -> float:
    """Return the value at the last step, which is not the newest one where a value of an earlier step came late."""
    return series[max(series)]


def _quantity(value: float, unit: str) -> str:
    return quantity(value, unit) if unit else chart_number(value)


def _caption(title: str, said: str) -> Markup:
    return tag("figcaption", tag("b", title), " ", tag("span", said))


def _look(number: int) -> str:
    """Curves beyond the colors are dashed."""
    return f"c{number % COLORS}" + (" dashed" if number // COLORS % 2 else "")


def _legend(labels: Sequence[str]) -> Markup:
    if len(labels) < 2:
        return Markup("")
    keys = (tag("span", label, class_=f"key {_look(number)}") for number, label in enumerate(labels))
    return tag("p", joined(keys), class_="legend")


def _lines(
    names: Sequence[str], drawn: Sequence[Sequence[tuple[int, float]]], after: int | None = None
) -> list[dict[str, object]]:
    """JSON knows no NaN: what is not finite is null, a gap as in the picture."""
    # What is new is few points, and nothing of them tells how close the others are.
    digits = _MOST_DIGITS if after is not None else _digits([value for found in drawn for _, value in found])
    return [
        {"name": label, "points": [[step, _short(value, digits)] for step, value in found]}
        for label, found in zip(names, drawn, strict=True)
    ]


_DIGITS, _MOST_DIGITS = 6, 17
"""Of a value in a page: six make a page half as large, 17 are all that a double has."""


def _digits(values: Sequence[float]) -> int:
    """Return how many digits tell values apart in a picture: more than six where they are large and close together."""
    finite = [value for value in values if math.isfinite(value)]
    spread, size = (max(finite) - min(finite), max(map(abs, finite))) if finite else (0.0, 0.0)
    if not 0 < spread < size:
        return _DIGITS
    # The digits that all have in common, and four of what differs: a picture has some hundred pixels.
    return min(max(math.ceil(math.log10(size / spread)) + 4, _DIGITS), _MOST_DIGITS)


def _short(value: float, digits: int) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _edges(low: float, high: float, unit: str) -> tuple[str, str]:
    """Return two numbers that can be told apart: the second as what it is more, where rounding makes them one."""
    short = _quantity(low, unit), _quantity(high, unit)
    if short[0] != short[1] or low == high:
        return short
    return short[0], f"+{high - low:.2g}"


def _label(shown: str, x: float, y: float, anchor: str) -> Markup:
    return tag("text", shown, x=x, y=y, text_anchor=anchor)


class _Frame(NamedTuple):
    """The numbers at the edges of a picture."""

    first: int
    last: int
    low: float
    high: float

    @classmethod
    def of(cls, steps: Sequence[int], values: Sequence[float]) -> _Frame:
        """Return what holds all of them; what differs by rounding only is flat."""
        low, high = min(values), max(values)
        # Rounding of the last digits would fill the whole height of the picture.
        is_flat = math.isclose(low, high, rel_tol=1e-12)
        return cls(min(steps), max(steps), low, low if is_flat else high)

    def lines(self, points: Sequence[tuple[int, float]], look: str) -> list[Markup]:
        """Return the line, and the points that stand alone between gaps: a stroke without length is a dot."""
        # One part for each stretch without a gap.
        parts: list[list[str]] = [[]]
        for step, value in points:
            if math.isfinite(value):
                x, y = self._place(step, value)
                parts[-1].append(f"{x:.1f} {y:.1f}")
            elif parts[-1]:
                parts.append([])
        line = "".join("M" + "L".join(part) for part in parts if len(part) > 1)
        dots = "".join(f"M{part[0]}h.01" for part in parts if len(part) == 1)
        return [tag("path", d=d, class_=kind) for d, kind in ((line, look), (dots, f"{look} dot")) if d]

    def marks(self, steps: Iterable[int]) -> str:
        """Return a stroke on the axis for each step."""
        return "".join(f"M{self._place(step, self.low)[0]:.1f} {HEIGHT - _BOTTOM - 4}v8" for step in steps)

    def labels(self, axis: str, unit: str) -> list[Markup]:
        """Return what stands at the edges, one number where both are the same."""
        low, high = _edges(self.low, self.high, unit)
        last = f"{axis} {chart_number(self.last)}" + (" s" if axis == TIME_AXIS else "")
        values, steps = [(high, _TOP + 8), (low, HEIGHT - _BOTTOM)], [(chart_number(self.first), _LEFT, "start")]
        if self.low == self.high:
            values = [(low, (_TOP + HEIGHT - _BOTTOM) // 2 + 4)]
        if self.first == self.last:
            steps = [(last, (_LEFT + WIDTH - _RIGHT) // 2, "middle")]
        else:
            steps.append((last, WIDTH - _RIGHT, "end"))
        return [_label(shown, _LEFT - 5, y, "end") for shown, y in values] + [
            _label(shown, x, HEIGHT - 5, anchor) for shown, x, anchor in steps
        ]

    def _place(self, step: int, value: float) -> tuple[float, float]:
        x = (step - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        # Halves first: the difference of the largest doubles is infinite.
        height = self.high / 2 - self.low / 2
        y = (value / 2 - self.low / 2) / height if height > 0 else 0.5
        return _LEFT + x * (WIDTH - _LEFT - _RIGHT), _TOP + (1 - y) * (HEIGHT - _TOP - _BOTTOM)
