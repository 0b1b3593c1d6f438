"""Exponential buckets: what quantiles and histograms are computed from (OTLP ExponentialHistogram)."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["MAX_BUCKETS", "SCALE", "ExponentialBuckets"]

SCALE = 6
"""Buckets grow by 2^(1/64), so a bucket's middle is within 0.6 % of any value in it."""

MAX_BUCKETS = 2048
"""Per sign: 32 powers of two at scale 6."""


class ExponentialBuckets:
    """Counts of values per bucket `(base**i, base**(i + 1)]`, with `base = 2**2**-scale`.

    Attributes:
        scale: `SCALE`, or lower where the data span too much for it.
        zeros: values that are 0.
        positive, negative: i → count, of values above 0 and, by their magnitude, below.

    Examples:
        >>> buckets = ExponentialBuckets()
        >>> buckets.add([1.0, 1.5, -2.0, 0.0, float("nan")])
        >>> buckets.zeros, sorted(buckets.positive.items()), sorted(buckets.negative.items())
        (1, [(-1, 1), (37, 1)], [(63, 1)])
    """

    __slots__ = ("negative", "positive", "scale", "zeros")

    def __init__(self) -> None:
        self.scale = SCALE
        self.zeros = 0
        self.positive: dict[int, int] = {}
        self.negative: dict[int, int] = {}

    def add(self, values: Iterable[float]) -> None:
        """Count values; non-finite ones have no bucket. Lowers the scale where they span too much."""
        for value in values:
            if value == 0.0:
                self.zeros += 1
            elif math.isfinite(value):
                side = self.positive if value > 0 else self.negative
                index = _index(abs(value), self.scale)
                side[index] = side.get(index, 0) + 1
        # Both signs together, for a point has one scale.
        while max(_span(self.positive), _span(self.negative)) > MAX_BUCKETS:
            self.scale -= 1
            self.positive, self.negative = _halved(self.positive), _halved(self.negative)

    @property
    def coarse(self) -> bool:
        """Whether the promised accuracy was given up for the width of the data."""
        return self.scale < SCALE


def _index(magnitude: float, scale: int) -> int:
    # log2 of a power of two is exact, so bounds fall into the right bucket; shifting is exact at lower scales.
    index: int = math.ceil(math.log2(magnitude) * 2**SCALE) - 1
    return index >> (SCALE - scale)


def _span(side: dict[int, int]) -> int:
    return max(side) - min(side) + 1 if side else 0


def _halved(side: dict[int, int]) -> dict[int, int]:
    out: dict[int, int] = {}
    for index, count in side.items():
        # Buckets 2i and 2i + 1 of one scale are bucket i of the next lower one; >> rounds down for negative numbers,
        # too.
        out[index >> 1] = out.get(index >> 1, 0) + count
    return out
