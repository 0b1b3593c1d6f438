"""Draws many small images as one."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["montage"]


def montage(images: npt.NDArray[np.float32], *, side: int = 8, scale: int = 4, gap: int = 2) -> npt.NDArray[np.uint8]:
    """Return square images (one a row, pixels in [0, 1]) side by side, white on black; none gives one empty tile.

    Examples:
        >>> montage(np.ones((5, 64), dtype=np.float32)).shape
        (70, 104)
    """
    columns = max(math.ceil(math.sqrt(len(images))), 1)
    rows = max(math.ceil(len(images) / columns), 1)
    tile = side * scale + gap
    picture = np.zeros((rows * tile + gap, columns * tile + gap), dtype=np.uint8)
    for index, image in enumerate(images):
        top, left = gap + index // columns * tile, gap + index % columns * tile
        pixels = (image.reshape(side, side) * 255).astype(np.uint8)
        picture[top : top + side * scale, left : left + side * scale] = np.kron(
            pixels, np.ones((scale, scale), dtype=np.uint8)
        )
    return picture
