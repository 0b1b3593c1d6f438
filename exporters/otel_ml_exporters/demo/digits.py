"""Scikit-learn's 1,797 handwritten digits, split into training and test."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_ml.exceptions import MissingDependencyError

__all__ = ["DESCRIPTION", "Batch", "batches", "held_out_set", "training_set"]

DESCRIPTION = (
    "Optical recognition of handwritten digits (E. Alpaydin, C. Kaynak, 1998), as shipped with scikit-learn: "
    "1,797 images of 8×8 pixels in 10 classes, every fifth one held out for the test."
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Images, one a row with pixels in [0, 1], and the digits they show."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]


def training_set() -> Batch:
    """Return four fifths of the digits."""
    return _digits(test=False)


def held_out_set() -> Batch:
    """Return the other fifth."""
    return _digits(test=True)


def _digits(*, test: bool) -> Batch:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingDependencyError("The demo", package="scikit-learn", extra="demo") from error
    bunch = load_digits()
    chosen = (np.arange(len(bunch.target)) % 5 == 4) == test
    return Batch((bunch.data[chosen] / 16).astype(np.float32), bunch.target[chosen].astype(np.int64))


def batches(data: Batch, *, rank: int, world_size: int, batch_size: int, steps: int, seed: int) -> Iterator[Batch]:
    """Yield this rank's share of `steps` batches; every epoch has a new order, the same on all ranks."""
    shuffle = np.random.default_rng(seed)
    left = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        if len(left) < batch_size * world_size:
            left = np.concatenate([left, shuffle.permutation(len(data.labels))])
        mine, left = left[rank : batch_size * world_size : world_size], left[batch_size * world_size :]
        yield Batch(data.images[mine], data.labels[mine])
