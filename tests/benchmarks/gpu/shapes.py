"""How much is measured on a GPU: two transformers, one that is bound by launches and one by the GPU itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SIZES", "SMOKE", "GpuSize", "Shape"]


@dataclass(frozen=True)
class Shape:
    """A transformer and its batch."""

    width: int
    layers: int
    sequences: int
    tokens: int


SMALL = Shape(1024, 12, 8, 512)
"""151 million parameters in 144 tensors: a step takes 20 ms, and the host is hardly quicker than the GPU."""

LARGE = Shape(2048, 16, 8, 1024)
"""806 million in 192: 95 ms, and the host is far ahead."""


@dataclass(frozen=True)
class GpuSize:
    """How often.

    Attributes:
        small, large: the models.
        calls: of each kind, each in a step of its own.
        pairs: of blocks with and without, of the small model's steps.
        large_pairs: of the large one's.
        inspected: width and rows of the 24 layers that are inspected.
        inspected_pairs: of blocks with an inspection each step, and of those with one in `seldom` steps.
        repeated: passes of a profile from which a mean is taken.
    """

    small: Shape
    large: Shape
    calls: int
    pairs: int
    large_pairs: int
    inspected: tuple[int, int]
    inspected_pairs: tuple[int, int]
    repeated: int
    seldom: int = 100


FULL = GpuSize(SMALL, LARGE, 60, 120, 25, (1024, 4096), (100, 25), 20)
QUICK = GpuSize(SMALL, LARGE, 20, 30, 8, (1024, 4096), (20, 6), 10)

TINY = Shape(64, 1, 2, 8)
SMOKE = GpuSize(TINY, TINY, 2, 2, 2, (16, 4), (2, 1), 2, seldom=3)
"""For a CPU, to see that the programs run; its figures mean nothing and are never recorded."""

SIZES: Mapping[str, GpuSize] = {"quick": QUICK, "full": FULL, "long": FULL}
"""By the name of the whole run's size."""
