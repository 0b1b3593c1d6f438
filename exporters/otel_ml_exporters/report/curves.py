"""Curves as SVG: what a person sees, and the numbers behind it for the pointer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from otel_ml_exporters.report.markup import Markup, chart_number, joined, tag
from otel_ml_exporters.report.units import unit_of
from otel_ml_exporters.runs.history import Series

__all__ = ["COLOURS", "Curve", "chart", "thinned"]

WIDTH, HEIGHT = 340, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 8, 8, 20
_POINTS = 300
"""Points of a curve that is drawn; of more, the lowest and highest of each stretch are."""

COLOURS = 6
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
    points = list(series.items())
    if len(points) <= most:
        return points
    stretch = math.ceil(len(points) * 2 / most)
    kept: list[tuple[int, float]] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        finite = [point for point in part if math.isfinite(point[1])]
        chosen = {min(finite, key=_value), max(finite, key=_value)} if finite else {part[0]}
        kept += sorted(chosen)
    return kept


def _value(point: tuple[int, float]) -> float:
    return point[1]


def chart(title: str, axis: str, curves: Sequence[Curve]) -> Markup:
    """Return a figure with one or several curves over an axis; gaps where a value is NaN or infinite."""
    drawn = {curve.label: thinned(curve.series) for curve in curves}
    points = [point for found in drawn.values() for point in found if math.isfinite(point[1])]
    last = [f"{chart_number(list(curve.series.values())[-1])}" for curve in curves if curve.series]
    shown_value = last[0] if last and len(curves) == 1 else ""
    caption = tag("figcaption", tag("b", title), " ", tag("span", f"{shown_value} {unit_of(title)}".strip()))
    if not points:
        return tag("figure", caption, tag("p", "no finite value", class_="quiet"), class_="chart")
    frame = _Frame.around(points)
    lines = [
        tag("path", d=frame.path(found), class_=f"c{number % COLOURS}") for number, found in enumerate(drawn.values())
    ]
    labels = [
        _label(f"{frame.high:.3g}", _LEFT - 5, _TOP + 8, "end"),
        _label(f"{frame.low:.3g}", _LEFT - 5, HEIGHT - _BOTTOM, "end"),
        _label(chart_number(frame.first), _LEFT, HEIGHT - 5, "start"),
        _label(f"{axis} {chart_number(frame.last)}", WIDTH - _RIGHT, HEIGHT - 5, "end"),
    ]
    grid = tag("path", d=f"M{_LEFT} {_TOP}V{HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}", class_="axis")
    shown = {"lines": _numbers(drawn), "x": [frame.first, frame.last], "axis": axis, "left": _LEFT, "right": _RIGHT}
    picture = tag(
        "svg", grid, *lines, *labels, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{title} over {axis}",
        data_curves=json.dumps(shown, separators=(",", ":")),
    )  # fmt: skip
    return tag("figure", caption, picture, _legend(list(drawn)), class_="chart")


def _legend(labels: Sequence[str]) -> Markup:
    if len(labels) < 2:
        return Markup("")
    keys = (tag("span", label, class_=f"key c{number % COLOURS}") for number, label in enumerate(labels))
    return tag("p", joined(keys), class_="legend")


def _numbers(drawn: Mapping[str, Sequence[tuple[int, float]]]) -> list[dict[str, object]]:
    """JSON knows no NaN: what is not finite is left out, as in the picture."""
    return [
        {"name": label, "points": [[step, float(f"{value:.6g}")] for step, value in found if math.isfinite(value)]}
        for label, found in drawn.items()
    ]


def _label(shown: str, x: float, y: float, anchor: str) -> Markup:
    return tag("text", shown, x=x, y=y, text_anchor=anchor)


class _Frame(NamedTuple):
    """The numbers at the edges of a picture."""

    first: int
    last: int
    low: float
    high: float

    @classmethod
    def around(cls, points: Sequence[tuple[int, float]]) -> _Frame:
        steps, values = zip(*points, strict=True)
        return cls(min(steps), max(steps), min(values), max(values))

    def path(self, points: Sequence[tuple[int, float]]) -> str:
        """Return the line; a point alone between gaps is a short stroke, so that it can be seen."""
        parts: list[str] = []
        is_open = False
        for step, value in points:
            if not math.isfinite(value):
                is_open = False
                continue
            x, y = self._place(step, value)
            parts.append(f"{'L' if is_open else 'M'}{x:.1f} {y:.1f}" + ("" if is_open else "h.1"))
            is_open = True
        return "".join(parts)

    def _place(self, step: int, value: float) -> tuple[float, float]:
        x = (step - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        # Halves first: the difference of the largest doubles is infinite.
        height = self.high / 2 - self.low / 2
        y = (value / 2 - self.low / 2) / height if height > 0 else 0.5
        return _LEFT + x * (WIDTH - _LEFT - _RIGHT), _TOP + (1 - y) * (HEIGHT - _TOP - _BOTTOM)
