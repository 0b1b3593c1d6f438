"""What workers did over time: a line each, and their mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["average_figure", "per_worker_figure", "series_of"]

Series = Mapping[Any, Sequence[float]]
"""Worker → values, one every so many seconds."""


def series_of(metrics: Mapping[Any, Sequence[Any]]) -> Series:
    """Return the workers that have values, in order; workers of other types than numbers come by their name."""
    workers = sorted(metrics, key=lambda worker: (not isinstance(worker, int), worker if isinstance(worker, int) else 0,
                                                  str(worker)))  # fmt: skip
    return {worker: [float(value) for value in metrics[worker]] for worker in workers if len(metrics[worker])}


def per_worker_figure(series: Series, name: str, interval_s: float) -> Figure:
    """Draw one line a worker over seconds."""
    figure, axes = _empty(name, f"{name} (per worker)")
    for worker, values in series.items():
        axes.plot(np.arange(len(values)) * interval_s, values, label=f"worker_{worker}")
    axes.legend()
    return figure


def average_figure(series: Series, name: str, interval_s: float) -> Figure:
    """Draw the mean over the workers for as long as all of them have values."""
    shortest = min(len(values) for values in series.values())
    mean = np.mean([values[:shortest] for values in series.values()], axis=0)
    figure, axes = _empty(name, f"{name} (average)")
    axes.plot(np.arange(shortest) * interval_s, mean, label="average")
    axes.legend()
    return figure


def _empty(title: str, label: str) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure  # not pyplot: that keeps every figure, and asks for a window system

    figure = Figure(layout="tight")
    axes = figure.subplots()
    axes.set(title=title, xlabel="Time (s)", ylabel=label)
    axes.grid(visible=True, alpha=0.2)
    return figure, axes
