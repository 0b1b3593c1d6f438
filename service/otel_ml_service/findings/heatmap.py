"""How slow every rank was in each of the last steps, as a picture: a row a rank, a column a step."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml.wire.png import encode_png

__all__ = ["Heatmap", "Picture"]

Floats = npt.NDArray[np.float64]

STEPS = 128
_ROWS = 256
"""More ranks share rows; a row shows the slowest of its ranks."""
_PIXELS = 1024
"""Of a side of the picture, at most; a rank or a step is never less than one."""
_HOTTEST = 1.0
"""Twice the usual time; slower looks the same."""
_COLORS = np.array([[28, 36, 58], [54, 92, 141], [240, 196, 84], [214, 69, 48]], dtype=np.float64)
_NOTHING = (120, 120, 120)


class Picture(NamedTuple):
    """A PNG, and what it shows in words."""

    png: bytes
    width: int
    height: int
    caption: str


class Heatmap:
    """Remembers the last 128 steps."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, Floats]] = deque(maxlen=STEPS)

    def add(self, step: int, slowdowns: Floats) -> None:
        """Take each rank's largest slow-down of a step."""
        # Half the memory: a picture shows no more.
        self._steps.append((step, slowdowns.astype(np.float32)))

    def picture(self, ranks: tuple[int, ...]) -> Picture | None:
        """Return the picture; `ranks` are those of the places of the slow-downs. None while there is nothing."""
        if not self._steps or not ranks:
            return None
        matrix = np.full((len(ranks), len(self._steps)), np.nan)
        for column, (_, slowdowns) in enumerate(self._steps):
            matrix[: len(slowdowns), column] = slowdowns
        # Rows are in the order in which ranks were first heard; in the picture they ascend.
        matrix = _thinned(matrix[np.argsort(ranks)])
        # Pixels of a rank, and of a step: few of them are drawn large enough to be seen.
        tall, wide = (max(1, min(most, _PIXELS // size)) for most, size in zip((24, 8), matrix.shape, strict=True))
        pixels = _colored(matrix).repeat(tall, axis=0).repeat(wide, axis=1)
        first, last = self._steps[0][0], self._steps[-1][0]
        caption = (
            f"How much longer than the usual rank: ranks {min(ranks)} to {max(ranks)} from top to bottom, "
            f"steps {first} to {last} from left to right; dark as the others, red twice their time or more, "
            "gray without a timer."
        )
        height, width, channels = pixels.shape
        return Picture(encode_png(pixels.tobytes(), width, height, channels), width, height, caption)


def _thinned(matrix: Floats) -> Floats:
    if len(matrix) <= _ROWS:
        return matrix
    filled = np.where(np.isnan(matrix), -np.inf, matrix)
    # `reduceat` takes the rows from each edge to the next: no row is in two, or in none.
    edges = np.linspace(0, len(matrix), _ROWS, endpoint=False).astype(np.int64)
    thinned = np.maximum.reduceat(filled, edges, axis=0)
    return np.where(np.isinf(thinned), np.nan, thinned)


def _colored(matrix: Floats) -> npt.NDArray[np.uint8]:
    unknown = np.isnan(matrix)
    heat = np.clip(np.where(unknown, 0.0, matrix) / _HOTTEST, 0.0, 1.0)
    stops = np.linspace(0.0, 1.0, len(_COLORS))
    channels = [np.interp(heat, stops, _COLORS[:, channel]) for channel in range(3)]
    colored: npt.NDArray[np.uint8] = np.stack(channels, axis=-1).round().astype(np.uint8)
    colored[unknown] = _NOTHING
    return colored
