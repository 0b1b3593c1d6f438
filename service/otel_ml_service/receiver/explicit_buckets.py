"""Histograms with explicit bounds (Prometheus, most SDKs) → exponential buckets, so that they have quantiles.

What lies in a bucket is spread evenly over it, as Prometheus' `histogram_quantile` does. The share of each exponential
bucket depends on the bounds alone, so that the difference of two cumulative points is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from otel_ml_service.aggregation.observation import Buckets

__all__ = ["exponential"]

SCALE = 6
_BASE = 2.0 ** (2.0**-SCALE)
_DOUBLINGS = 6
"""A bucket that begins at 0 is spread over this many halvings; the 1.6 % below them count as 0."""

_LARGEST, _SMALLEST = 1e300, 1e-300
"""Bounds beyond count as this one, and as 0."""

Shares = tuple[tuple[int, float], ...]


def exponential(bounds: Sequence[float], counts: Sequence[int]) -> Buckets | None:
    """Return the buckets, or None where the point has no bounds, or bounds that are not numbers.

    Args:
        bounds: ascending; bucket i holds (bounds[i - 1], bounds[i]].
        counts: one more than there are bounds.

    Examples:
        >>> exponential([], [3]) is None
        True
        >>> exponential([1.0, 2.0], [0, 8, 0]).positive_offset
        0
    """
    if not bounds or len(counts) != len(bounds) + 1 or not all(map(math.isfinite, bounds)):
        return None
    bounds = [*map(_tame, bounds)]
    signs: tuple[dict[int, float], dict[int, float]] = ({}, {})
    zero = 0.0
    for place, count in enumerate(counts):
        if not count:
            continue
        at_zero, negative, positive = _spread(*_ends(bounds, place))
        zero += count * at_zero
        for into, shares in zip(signs, (negative, positive), strict=True):
            for index, share in shares:
                into[index] = into.get(index, 0.0) + count * share
    (negative_offset, below), (positive_offset, above) = map(_dense, signs)
    return Buckets(SCALE, zero, positive_offset, above, negative_offset, below)


def _tame(bound: float) -> float:
    """Return a bound whose powers and differences are doubles, too: some end with the largest one there is."""
    size = min(abs(bound), _LARGEST)
    return math.copysign(size, bound) if size > _SMALLEST else 0.0


def _ends(bounds: Sequence[float], place: int) -> tuple[float, float]:
    """Return a bucket's finite ends; what is beyond the last bound counts as that bound."""
    if place == len(bounds):
        return bounds[-1], bounds[-1]
    high = bounds[place]
    low = bounds[place - 1] if place else min(0.0, high)
    return low, high


# The bounds of a metric are the same in each of its points.
@lru_cache(maxsize=4096)
def _spread(low: float, high: float) -> tuple[float, Shares, Shares]:
    """Return the share of (low, high] at zero, and of each exponential bucket below and above it."""
    width = high - low
    if width <= 0:
        point = ((_index(abs(high)), 1.0),) if high else ()
        return (0.0 if high else 1.0), (point if high < 0 else ()), (point if high > 0 else ())
    below, at_below = _part(max(0.0, -high), max(0.0, -low), width)
    above, at_above = _part(max(0.0, low), max(0.0, high), width)
    return at_below + at_above, below, above


def _part(low: float, high: float, width: float) -> tuple[Shares, float]:
    """Return the shares of the part (low, high] of a bucket, both positive, and what of it counts as zero."""
    if high <= low:
        return (), 0.0
    start = max(low, high / 2**_DOUBLINGS)
    shares = []
    for index in range(_index(start), _index(high) + 1):
        overlap = min(high, _BASE ** (index + 1)) - max(start, _BASE**index)
        if overlap > 0:
            shares.append((index, overlap / width))
    return tuple(shares), (start - low) / width


def _index(value: float) -> int:
    """Return the bucket (base^i, base^(i+1)] that holds `value`."""
    return math.ceil(math.log2(value) * (1 << SCALE)) - 1


def _dense(shares: dict[int, float]) -> tuple[int, tuple[float, ...]]:
    if not shares:
        return 0, ()
    first = min(shares)
    return first, tuple(shares.get(index, 0.0) for index in range(first, max(shares) + 1))
