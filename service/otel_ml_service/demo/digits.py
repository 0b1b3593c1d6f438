"""Scikit-learn's 1,797 handwritten digits, split into training and test."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from otel_ml.exceptions import MissingDependencyError

__all__ = ["DESCRIPTION", "Batch", "batches", "held_out_set", "montage", "save_digits", "training_set"]

_FILE = "digits.npz"

DESCRIPTION = (
    "Optical recognition of handwritten digits (E. Alpaydin, C. Kaynak, 1998), as shipped with scikit-learn: "
    "1,797 images of 8×8 pixels in 10 classes, every fifth one held out for the test."
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Images, one a row with pixels in [0, 1], and the digits they show."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]


def save_digits(folder: Path) -> None:
    """Write all digits into `folder`, once for all processes: importing scikit-learn takes each of them seconds.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingDependencyError("The demo", package="scikit-learn", extra="demo") from error
    # Their pixels are from 0 to 16.
    images, labels = load_digits(return_X_y=True)
    np.savez(folder / _FILE, images=(images / 16).astype(np.float32), labels=labels.astype(np.int64))


def training_set(folder: Path) -> Batch:
    """Return four fifths of the digits that `save_digits` wrote."""
    return _digits(folder, test=False)


def held_out_set(folder: Path) -> Batch:
    """Return the other fifth."""
    return _digits(folder, test=True)


def _digits(folder: Path, *, test: bool) -> Batch:
    with np.load(folder / _FILE) as archive:
        images, labels = archive["images"], archive["labels"]
    chosen = (np.arange(len(labels)) % 5 == 4) == test
    return Batch(images[chosen], labels[chosen])


def batches(data: Batch, *, rank: int, world_size: int, batch_size: int, steps: int, seed: int) -> Iterator[Batch]:
    """Yield this rank's share of `steps` batches; every epoch has a new order, the same on all ranks."""
    shuffle = np.random.default_rng(seed)
    left = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        if len(left) < batch_size * world_size:
            # What is left of an epoch comes first: no image is passed over.
            left = np.concatenate([left, shuffle.permutation(len(data.labels))])
        # Of the joint batch rank 1 of 4 takes places 1, 5, 9, ….
        mine, left = left[rank : batch_size * world_size : world_size], left[batch_size * world_size :]
        yield Batch(data.images[mine], data.labels[mine])


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
