"""Pictures in the shapes that other trackers take."""

from __future__ import annotations

from typing import Any

__all__ = ["FRAMES", "film_strip", "grid", "in_range"]

FRAMES = 16


def in_range(data: Any) -> Any:
    """Return floats of 0-255 as bytes: the others take both scales, and ours are 0-1."""
    import numpy as np

    if isinstance(data, np.ndarray) and np.issubdtype(data.dtype, np.floating) and data.size and np.nanmax(data) > 1:
        return np.clip(np.nan_to_num(data), 0, 255).astype(np.uint8)
    return data


def film_strip(frames: Any) -> tuple[Any, int]:
    """Return up to 16 frames (time, channel, height, width) side by side, and how many they are."""
    import numpy as np

    chosen = frames[:: max(1, -(-len(frames) // FRAMES))]
    return np.concatenate([np.moveaxis(frame, 0, -1) for frame in chosen], axis=1), len(chosen)


def grid(pictures: Any) -> Any:
    """Return pictures (n, height, width, channel) as one, in about as many rows as columns."""
    import numpy as np

    columns = int(np.ceil(np.sqrt(len(pictures))))
    rows = -(-len(pictures) // columns)
    empty = np.zeros((rows * columns - len(pictures), *pictures.shape[1:]), pictures.dtype)
    cells = np.concatenate([pictures, empty])
    return np.concatenate(
        [np.concatenate(list(cells[row * columns : (row + 1) * columns]), axis=1) for row in range(rows)], axis=0
    )
