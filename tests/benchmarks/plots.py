"""Curves as SVG: no background, and colors that can be read on a light page and on a dark one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Curve

__all__ = ["draw"]

GREY = "#808080"
COLORS = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#a855f7", "#14b8a6", "#ec4899")
STYLE: Mapping[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "otel_ml",
    "font.size": 10,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlesize": 11,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
DECADES = 30
"""An axis whose values differ by more than this factor is logarithmic."""


def draw(curve: Curve, path: Path) -> None:
    """Write one plot: lines, or bars where each line is one point."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(dict(STYLE)):
        is_bars = all(len(points) == 1 for points in curve.lines.values())
        figure, axes = pyplot.subplots(figsize=(7, 0.7 + 0.28 * len(curve.lines) if is_bars else 3.2))
        (_bars if is_bars else _lines)(axes, curve)
        axes.set_title(curve.title)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)


def _lines(axes: Any, curve: Curve) -> None:
    for color, (label, points) in zip(COLORS * 3, curve.lines.items(), strict=False):
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, color=color, label=label, marker="o" if len(points) < 20 else None, markersize=4)
    every = [point for points in curve.lines.values() for point in points]
    if curve.x != "seconds":
        _scale(axes.set_xscale, [x for x, _ in every])
    if not _scale(axes.set_yscale, [y for _, y in every]):
        axes.set_ylim(bottom=0)
    axes.set_xlabel(curve.x)
    axes.set_ylabel(curve.y)
    axes.grid(color=GREY, alpha=0.25)
    if len(curve.lines) > 1:
        axes.legend()


def _bars(axes: Any, curve: Curve) -> None:
    values = [points[0][1] for points in curve.lines.values()]
    axes.barh(list(curve.lines), values, color=COLORS[0], height=0.6)
    axes.invert_yaxis()
    _scale(axes.set_xscale, values)
    axes.set_xlabel(curve.y)


def _scale(set_scale: Any, values: list[float]) -> bool:
    is_wide = min(values) > 0 and max(values) / min(values) > DECADES
    if is_wide:
        set_scale("log")
    return is_wide
