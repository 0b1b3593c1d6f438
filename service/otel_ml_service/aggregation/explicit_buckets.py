"""Histograms with explicit bounds (Prometheus, most SDKs) → exponential buckets, so that they have quantiles.

What lies in a bucket is spread evenly over it, as Prometheus' `histogram_quantile` does. The share of each exponential
bucket depends on the bounds alone, so points are kept, subtracted and stored with the counts they came with, a dozen
numbers, and are spread over a thousand when a row is made of them (ADR 0077).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.aggregation.points import Buckets, ExplicitBuckets

__all__ = ["SCALE", "Place", "Spread", "as_sent", "increase", "spread_of"]

SCALE = 6
"""Of the exponential buckets."""

_BASE = 2.0 ** (2.0**-SCALE)
_DOUBLINGS = 6
"""A bucket that begins at 0 is spread over this many halvings; the 1.6 % below them count as 0."""

_LARGEST, _SMALLEST = 1e300, 1e-300
"""Bounds beyond count as this one, and as 0."""

Shares = tuple[tuple[int, float], ...]

Place = tuple[int, int]
"""Sign of a bucket, and sign × index, such that buckets ascend with what is in them; (0, 0) is zero."""

_ZERO: Place = (0, 0)


def as_sent(bounds: tuple[float, ...], counts: tuple[int, ...]) -> ExplicitBuckets | None:
    """Return the buckets of a point, or None where it has no bounds, or bounds that are not numbers.

    Examples:
        >>> as_sent((), (3,)) is None
        True
        >>> as_sent((1.0, 2.0), (0, 8, 0)).counts
        (0, 8, 0)
    """
    if len(counts) != len(bounds) + 1 or not _are_numbers(bounds):
        return None
    return ExplicitBuckets(bounds, counts)


@lru_cache(maxsize=1024)
def _are_numbers(bounds: tuple[float, ...]) -> bool:
    return bool(bounds) and all(map(math.isfinite, bounds))


def increase(now: ExplicitBuckets, before: ExplicitBuckets) -> ExplicitBuckets | None:
    """Return the records that came since `before`; None where the bounds are others."""
    if now.bounds != before.bounds:
        return None
    counts = zip(now.counts, before.counts, strict=True)
    return ExplicitBuckets(now.bounds, tuple([max(0, count - then) for count, then in counts]))


class Spread(NamedTuple):
    """Over which exponential buckets records of buckets with certain bounds are spread, and with which shares.

    Attributes:
        places: the exponential ones, ascending.
        indices: of each of the places, its number among those of its sign.
        below, above: which of the places is the first that is not negative, and the first that is positive.
        shares: of each bucket the first of the places, and how much goes to it and to those after it.
    """

    places: Sequence[Place]
    indices: npt.NDArray[np.int64]
    below: int
    above: int
    shares: Sequence[tuple[int, npt.NDArray[np.float64]]]

    def counts(self, buckets: ExplicitBuckets) -> npt.NDArray[np.float64]:
        """Return how many records go to each of the places."""
        found = np.zeros(len(self.places))
        for (first, shares), count in zip(self.shares, buckets.counts, strict=True):
            if count:
                found[first : first + len(shares)] += count * shares
        return found

    def within(
        self, counts: npt.NDArray[np.float64], least: Place, largest: Place
    ) -> tuple[npt.NDArray[np.float64], Sequence[tuple[Place, float]]]:
        """Return counts with none below and above two places, and what of them is at these instead."""
        # Where a sender's minimum is above its maximum, everything goes to the maximum.
        low, high = bisect_left(self.places, min(least, largest)), bisect_right(self.places, largest)
        if low == 0 and high == len(self.places):
            return counts, ()
        kept = counts.copy()
        kept[:low] = kept[high:] = 0.0
        least = min(least, largest)
        return kept, [(least, float(counts[:low].sum())), (largest, float(counts[high:].sum()))]

    def dense(self, counts: npt.NDArray[np.float64]) -> Buckets:
        """Return counts as the buckets of a point."""
        # signs[0] has what is positive, signs[1] what is negative.
        zero, signs = 0.0, ({}, {})  # type: tuple[float, tuple[dict[int, float], dict[int, float]]]
        for (sign, signed), count in zip(self.places, counts.tolist(), strict=True):
            if not sign:
                zero = count
            elif count:
                signs[sign < 0][sign * signed] = count
        (above_offset, above), (below_offset, below) = map(_dense, signs)
        return Buckets(SCALE, zero, above_offset, above, below_offset, below)


# Bounds are those of a metric in all of its points.
@lru_cache(maxsize=256)
def spread_of(bounds: tuple[float, ...]) -> Spread:
    """Return how records of buckets with these bounds are spread."""
    tamed = [*map(_tame, bounds)]
    found: list[dict[Place, float]] = []
    for place in range(len(bounds) + 1):
        at_zero, negative, positive = _spread(*_ends(tamed, place))
        shares: dict[Place, float] = {(-1, -index): share for index, share in negative}
        shares |= {(1, index): share for index, share in positive}
        found.append(shares | ({_ZERO: at_zero} if at_zero else {}))
    places = sorted(set().union(*found))
    numbers = {place: number for number, place in enumerate(places)}
    indices = np.array([sign * signed for sign, signed in places], dtype=np.int64)
    below, above = bisect_left(places, _ZERO), bisect_right(places, _ZERO)
    return Spread(places, indices, below, above, [_together(shares, numbers) for shares in found])


def _together(shares: dict[Place, float], numbers: dict[Place, int]) -> tuple[int, npt.NDArray[np.float64]]:
    """Return shares side by side, from the first place that has one."""
    first = min((numbers[place] for place in shares), default=0)
    row = np.zeros(max((numbers[place] for place in shares), default=-1) + 1 - first)
    for place, share in shares.items():
        row[numbers[place] - first] = share
    return first, row


def _tame(bound: float) -> float:
    """Return a bound whose powers and differences are doubles, too: some end with the largest one there is."""
    size = min(abs(bound), _LARGEST)
    return math.copysign(size, bound) if size > _SMALLEST else 0.0


def _ends(bounds: Sequence[float], place: int) -> tuple[float, float]:
    """Return a bucket's finite ends; what is beyond the last bound counts as that bound."""
    if place == len(bounds):
        return bounds[-1], bounds[-1]
    high = bounds[place]
    # The first bucket begins at 0, as Prometheus takes it; below a negative bound it has no width.
    low = bounds[place - 1] if place else min(0.0, high)
    return low, high


def _spread(low: float, high: float) -> tuple[float, Shares, Shares]:
    """Return the share of (low, high] at zero, and of each exponential bucket below and above it."""
    width = high - low
    if width <= 0:
        # No width: what lies beyond the last bound, or below a first one that is not positive, is taken to be at it
        # (`_ends`).
        point = ((_index(abs(high)), 1.0),) if high else ()
        return (0.0 if high else 1.0), (point if high < 0 else ()), (point if high > 0 else ())
    below, at_below = _part(max(0.0, -high), max(0.0, -low), width)
    above, at_above = _part(max(0.0, low), max(0.0, high), width)
    return at_below + at_above, below, above


def _part(low: float, high: float, width: float) -> tuple[Shares, float]:
    """Return the shares of the part (low, high] of a bucket, both positive, and what of it counts as zero."""
    if high <= low:
        return (), 0.0
    # A bucket from 0 on would have an exponential one for each halving, without end.
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
