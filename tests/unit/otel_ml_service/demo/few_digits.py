"""Digits for the demo's programs, without scikit-learn: few, and none that a network could not learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["write_digits"]


def write_digits(folder: Path, count: int = 60) -> None:
    """Write images as `save_digits` does: digit after digit, each of two bright rows with some noise."""
    random = np.random.default_rng(5)
    labels = np.arange(count, dtype=np.int64) % 10
    images = random.uniform(0.0, 0.5, (count, 64)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[label * 6 : label * 6 + 8] = 1.0
    np.savez(folder / "digits.npz", images=images, labels=labels)
