"""Draws many small images as one."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["montage"]


_SIDE, _SCALE, _GAP = 8, 4, 2
"""Pixels of an image's edge, of one of its pixels, and between two images."""


def montage(images: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return square images (one a row, pixels in [0, 1]) side by side, white on black; none gives one empty tile.

    Examples:
        >>> montage(np.ones((5, 64), dtype=np.float32)).shape
        (70, 104)
    """
    columns = max(math.ceil(math.sqrt(len(images))), 1)
    rows = max(math.ceil(len(images) / columns), 1)
    tile = _SIDE * _SCALE + _GAP
    picture = np.zeros((rows * tile + _GAP, columns * tile + _GAP), dtype=np.uint8)
    for index, image in enumerate(images):
        top, left = _GAP + index // columns * tile, _GAP + index % columns * tile
        pixels = (image.reshape(_SIDE, _SIDE) * 255).astype(np.uint8)
        picture[top : top + _SIDE * _SCALE, left : left + _SIDE * _SCALE] = np.kron(
            pixels, np.ones((_SCALE, _SCALE), dtype=np.uint8)
        )
    return picture
