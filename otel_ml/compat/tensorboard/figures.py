"""Figures of matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_ml.compat.tracking.pictures import grid

__all__ = ["as_one_picture", "close"]


def as_one_picture(figures: Sequence[Any]) -> Any:
    """Return figures of one size as one picture."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = []
    for figure in figures:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        drawn.append(np.asarray(canvas.buffer_rgba())[..., :3])
    return grid(np.stack(drawn))


def close(figure: Any) -> None:
    """Close a figure, as `add_figure(close=True)` does."""
    import matplotlib.pyplot as plt

    plt.close(figure)
