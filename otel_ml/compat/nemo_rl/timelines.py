"""What workers did over time: a line each, and their mean."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["average_figure", "per_worker_figure", "series_of"]

Series = Mapping[Any, Sequence[float]]
"""Worker → values, one every so many seconds."""


def series_of(metrics: Mapping[Any, Sequence[Any]]) -> Series:
    """Return the workers that have values: numbered ones in their order, then named ones."""
    workers = [worker for worker in metrics if len(metrics[worker])]
    # 10 comes after 9, and numbers and names cannot be compared with each other.
    numbered = sorted(worker for worker in workers if isinstance(worker, numbers.Real))
    named = sorted((worker for worker in workers if not isinstance(worker, numbers.Real)), key=str)
    return {worker: [float(value) for value in metrics[worker]] for worker in (*numbered, *named)}


def per_worker_figure(metrics: Mapping[Any, Sequence[Any]], name: str, interval_s: float) -> Figure | None:
    """Draw one line a worker over seconds; None where no worker has a value."""
    series = series_of(metrics)
    if not series:
        return None
    figure, axes = _empty(name, f"{name} (per worker)")
    for worker, values in series.items():
        axes.plot(np.arange(len(values)) * interval_s, values, label=f"worker_{worker}")
    axes.legend()
    return figure


def average_figure(metrics: Mapping[Any, Sequence[Any]], name: str, interval_s: float) -> Figure | None:
    """Draw the mean over the workers for as long as all of them that have values do; None where none has."""
    series = series_of(metrics)
    if not series:
        return None
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
