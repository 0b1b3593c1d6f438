"""Exponential buckets of many writers merged into one distribution: quantiles and histograms (docs/protocol.md §2.8).

At scale 6 a bucket is (b^i, b^(i+1)] with b = 2^(1/64) = 1.0109. Its representative 2·lo·hi/(lo + hi) is at most
(b − 1)/(b + 1) = 0.54 % from any value in it: the smallest bound a single representative can have.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.aggregation.explicit_buckets import SCALE, Place, Spread, increase, spread_of
from otel_ml_service.aggregation.points import Buckets, ExplicitBuckets, Floats

__all__ = ["FULL_SCALE", "Distribution", "Part", "came_since", "difference", "merged", "narrowed", "nearest_rank"]

FULL_SCALE = 6
"""What our own writers send; less means that the data was too wide, and quantiles are coarser."""

_ROUNDING = 1e-12
"""Of a bound: a sender may have put a value that lies on one into the bucket beside it."""

_TOLERANCE = 1e-9
"""Of a rank: shares of a bucket with other bounds add up to a whole number but for rounding."""

MAX_BINS = 512
"""W&B refuses a histogram with more."""


@dataclass(frozen=True)
class Distribution:
    """Merged buckets at one scale.

    Attributes:
        positive, negative: bucket index → records; index i is (base^i, base^(i+1)] of the absolute value.
        low, high: smallest and largest value; NaN where unknown.
        total: sum of all values: says which non-finite ones there are.
        records: how many, non-finite ones included.
    """

    scale: int
    zero: float
    positive: dict[int, float]
    negative: dict[int, float]
    low: float
    high: float
    total: float
    records: int

    def quantile(self, q: float) -> float:
        """Return the nearest-rank quantile, within 0.6 % at scale 6; exact at both ends and where all values are equal.

        Records that are in no bucket are not finite: the sum tells which.
        """
        lost = self.nonfinite
        if lost > 0 and math.isnan(self.total):
            return math.nan
        rank = nearest_rank(q, self.records)
        if rank == 1 and math.isfinite(self.low):
            return self.low
        if rank == self.records and math.isfinite(self.high):
            return self.high
        if lost > 0 and math.isinf(self.total):
            if self.total > 0 and rank > self.records - lost:
                return math.inf
            if self.total < 0:
                # -Inf is smaller than all that is in buckets.
                if rank <= lost:
                    return -math.inf
                rank -= lost
        return self._clipped(self._at_rank(rank))

    def _at_rank(self, rank: float) -> float:
        places, records = self._ranked
        place = bisect_left(records, rank - _TOLERANCE)
        # A rank beyond all buckets (by rounding, or of what is not finite) is in the last one.
        sign, signed = places[min(place, len(places) - 1)]
        return sign * _representative(sign * signed, self.scale) if sign > 0 or (sign and place < len(places)) else 0.0

    @cached_property
    def _ranked(self) -> tuple[Sequence[Place], Sequence[float]]:
        """Return the buckets in the order of what is in them, and how many records are in each and those before it."""
        below, above = sorted(self.negative, reverse=True), sorted(self.positive)
        counts = (*map(self.negative.__getitem__, below), self.zero, *map(self.positive.__getitem__, above))
        return [*((-1, -i) for i in below), _ZERO, *((1, i) for i in above)], [*accumulate(counts)]

    def _clipped(self, value: float) -> float:
        if math.isfinite(self.low) and value < self.low:
            return self.low
        return self.high if math.isfinite(self.high) and value > self.high else value

    @property
    def nonfinite(self) -> int:
        """Records that are in no bucket."""
        # Explicit buckets are spread over exponential ones in shares, which add up to a whole number but for rounding.
        return self.records - round(self.zero + sum(self.positive.values()) + sum(self.negative.values()))

    def bins(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return (edges, counts), edges ascending and finite, at most 512 bins; empty where nothing is finite."""
        coarse = self
        # Each lower scale joins two buckets into one.
        while coarse._bin_count() > MAX_BINS:
            coarse = coarse.coarser(coarse.scale - 1)
        edges = coarse.edges()
        if len(edges) < 2:
            return (), ()
        counts = [float(coarse.negative.get(index, 0)) for index in _span(coarse.negative, reverse=True)]
        if coarse.spans_zero:
            counts.append(float(coarse.zero))
        counts += [float(coarse.positive.get(index, 0)) for index in _span(coarse.positive)]
        return edges, tuple(counts)

    def _bin_count(self) -> int:
        # Counted, not made: two points may lie 2^32 buckets apart.
        return len(_span(self.negative)) + len(_span(self.positive)) + self.spans_zero

    @property
    def spans_zero(self) -> bool:
        """Whether a bin around zero is needed."""
        return self.zero > 0 or (bool(self.positive) and bool(self.negative))

    def edges(self) -> tuple[float, ...]:
        """Return the boundaries of all bins at this scale."""
        left = [-_boundary(index + 1, self.scale) for index in _span(self.negative, reverse=True)]
        right = [_boundary(index + 1, self.scale) for index in _span(self.positive)]
        # Between the innermost buckets of both signs there is one bin, around zero.
        inner_left = -_boundary(min(self.negative), self.scale) if self.negative else None
        inner_right = _boundary(min(self.positive), self.scale) if self.positive else None
        if inner_left is None and inner_right is None:
            return (-0.5, 0.5) if self.zero else ()
        if inner_left is None:
            middle = [0.0, inner_right] if self.zero else [inner_right]
        elif inner_right is None:
            middle = [inner_left, 0.0] if self.zero else [inner_left]
        else:
            middle = [inner_left, inner_right]
        return tuple(edge for edge in (*left, *middle, *right) if edge is not None)

    def coarser(self, scale: int) -> Distribution:
        """Return the same at a lower scale: 2^k neighboring buckets become one."""
        shift = self.scale - scale
        positive, negative = _shifted(self.positive, shift), _shifted(self.negative, shift)
        return replace(self, scale=scale, positive=positive, negative=negative)


def nearest_rank(q: float, count: int) -> int:
    """Return the 1-based rank of the quantile `q` among `count` values.

    Examples:
        >>> nearest_rank(0.5, 4), nearest_rank(0.99, 100), nearest_rank(0.0, 3)
        (2, 99, 1)
    """
    # 0.99 × 100 is 99.00000000000001 in binary: without rounding the rank would be 100.
    return min(count, max(1, math.ceil(round(q * count, 9))))


class Part(NamedTuple):
    """One point's buckets with what else it says."""

    buckets: Buckets | ExplicitBuckets
    records: float
    total: float
    low: float
    high: float


def merged(parts: Sequence[Part]) -> Distribution:
    """Merge several points at the lowest scale among them; what one knows of its extremes narrows its buckets."""
    points = [narrowed(part.buckets, part.low, part.high) for part in parts if isinstance(part.buckets, Buckets)]
    scale = min([buckets.scale for buckets in points] or [SCALE])
    if len(points) < len(parts):
        scale = min(scale, SCALE)
    positive: dict[int, float] = {}
    negative: dict[int, float] = {}
    zero = 0.0
    for buckets in points:
        shift = buckets.scale - scale
        zero += buckets.zero_count
        _pour(positive, buckets.positive_offset, buckets.positive, shift)
        _pour(negative, buckets.negative_offset, buckets.negative, shift)
    shift = SCALE - scale
    sums, moved = _spread(parts)
    for spread, counts in sums:
        below, above = spread.below, spread.above
        zero += float(counts[below:above].sum())
        _add(negative, spread.indices[:below], counts[:below], shift)
        _add(positive, spread.indices[above:], counts[above:], shift)
    for (sign, signed), count in moved:
        if sign:
            into, index = positive if sign > 0 else negative, sign * signed >> shift
            into[index] = into.get(index, 0) + count
        else:
            zero += count
    # One point that does not say its extremes makes those of all unknown: the buckets are all there is then.
    lows, highs = [part.low for part in parts], [part.high for part in parts]
    return Distribution(
        scale=scale,
        zero=zero,
        positive=positive,
        negative=negative,
        low=math.nan if any(map(math.isnan, lows)) else min(lows),
        high=math.nan if any(map(math.isnan, highs)) else max(highs),
        total=sum(part.total for part in parts),
        records=round(sum(part.records for part in parts)),
    )


def _spread(parts: Iterable[Part]) -> tuple[list[tuple[Spread, Floats]], list[tuple[Place, float]]]:
    """Return how many records of explicit buckets lie in exponential ones, and how many in those of their extremes.

    Those with the same bounds are added up.
    """
    sums: dict[tuple[float, ...], Floats] = {}
    moved: list[tuple[Place, float]] = []
    for part in parts:
        buckets = part.buckets
        if not isinstance(buckets, ExplicitBuckets):
            continue
        spread = spread_of(buckets.bounds)
        kept, beyond = spread.within(spread.counts(buckets), *_limits_of(buckets, part.low, part.high))
        known = sums.get(buckets.bounds)
        sums[buckets.bounds] = kept if known is None else known + kept
        moved += [(place, count) for place, count in beyond if count]
    return [(spread_of(bounds), counts) for bounds, counts in sums.items()], moved


def _add(into: dict[int, float], indices: npt.NDArray[np.int64], counts: Floats, shift: int) -> None:
    found = np.flatnonzero(counts)
    pairs = zip((indices[found] >> shift).tolist(), counts[found].tolist(), strict=True)
    if not into and not shift:  # no index comes twice: in C, what the loop does one by one
        into.update(pairs)
    else:
        for index, count in pairs:
            into[index] = into.get(index, 0) + count


def _limits_of(buckets: ExplicitBuckets, low: float, high: float) -> tuple[Place, Place]:
    """Return between which places the records are: of what the stream said of all, and the point of its own."""
    least, largest = _limits(low, high, SCALE)
    if buckets.low is None and buckets.high is None:
        return least, largest
    within = _limits(
        math.nan if buckets.low is None else buckets.low, math.nan if buckets.high is None else buckets.high, SCALE
    )
    lowest, highest = (min(max(place, least), largest) for place in (min(within), within[1]))
    return lowest, highest


def narrowed(buckets: Buckets, low: float, high: float) -> Buckets:
    """Return the buckets with all that lies beyond the extremes in those of the extremes.

    A bucket of another SDK may be wide (0 to 5 s), and its records are spread over all of it.

    Args:
        buckets: of a point.
        low: no record is smaller; NaN where nothing is known.
        high: no record is larger; NaN where nothing is known.

    Examples:
        >>> narrowed(Buckets(0, 0, 0, (1, 1, 1), 0, ()), math.nan, 1.5)
        Buckets(scale=0, zero_count=0.0, positive_offset=0, positive=(3,), negative_offset=0, negative=())
    """
    least, largest = _limits(low, high, buckets.scale)
    places = _counts(buckets)
    if not places or (least <= min(places) and max(places) <= largest):
        return buckets
    kept: dict[Place, float] = {}
    for place, count in places.items():
        inside = min(max(place, least), largest)
        kept[inside] = kept.get(inside, 0) + count
    # From places to indices again: of each sign its lowest one, and the counts from there on.
    sides = [{sign * index: count for (of, index), count in kept.items() if of == sign} for sign in (1, -1)]
    positive, negative = ((min(side, default=0), tuple(side.get(i, 0) for i in _span(side))) for side in sides)
    return Buckets(buckets.scale, kept.get(_ZERO, 0.0), *positive, *negative)


_LEAST, _ZERO, _LARGEST = (-2, 0), (0, 0), (2, 0)
"""Below all places, zero, above all: those of values begin with their sign."""


def _limits(low: float, high: float, scale: int) -> tuple[Place, Place]:
    """Return the buckets of the extremes, where these are known."""
    return (
        _place(low - abs(low) * _ROUNDING, scale) if math.isfinite(low) else _LEAST,
        _place(high + abs(high) * _ROUNDING, scale) if math.isfinite(high) else _LARGEST,
    )


def _place(value: float, scale: int) -> Place:
    if value == 0:
        return _ZERO
    size = min(abs(value), sys.float_info.max)  # what is a rounding beyond the largest double is infinite
    index = math.ceil(math.log2(size) * 2.0**scale) - 1
    return (1, index) if value > 0 else (-1, -index)


def _counts(buckets: Buckets) -> dict[Place, float]:
    found: dict[Place, float] = {_ZERO: buckets.zero_count} if buckets.zero_count else {}
    for sign, offset, counts in (
        (1, buckets.positive_offset, buckets.positive),
        (-1, buckets.negative_offset, buckets.negative),
    ):
        found |= {(sign, sign * index): count for index, count in enumerate(counts, offset) if count}
    return found


def came_since(
    now: Buckets | ExplicitBuckets, before: Buckets | ExplicitBuckets, low: float, high: float
) -> Buckets | ExplicitBuckets:
    """Return the records of a stream that accumulates that came since a point before.

    Args:
        now: of the newest point.
        before: of the one before it.
        low: no record of the stream is smaller; NaN where nothing is known.
        high: no record of the stream is larger; NaN where nothing is known.
    """
    if isinstance(now, ExplicitBuckets) and isinstance(before, ExplicitBuckets):
        added = increase(now, before)
        if added is not None:
            return added._replace(low=low if math.isfinite(low) else None, high=high if math.isfinite(high) else None)
    return narrowed(difference(_exponential(now), _exponential(before)), low, high)


def _exponential(buckets: Buckets | ExplicitBuckets) -> Buckets:
    if isinstance(buckets, Buckets):
        return buckets
    spread = spread_of(buckets.bounds)
    return spread.dense(spread.counts(buckets))


def difference(whole: Buckets, before: Buckets) -> Buckets:
    """Return the records in `whole` that were not in `before`, at the lower scale of the two."""
    scale = min(whole.scale, before.scale)
    signs: list[tuple[int, tuple[float, ...]]] = []
    for sign in ("positive", "negative"):
        now: dict[int, float] = {}
        then: dict[int, float] = {}
        for into, buckets in ((now, whole), (then, before)):
            offset, counts = getattr(buckets, f"{sign}_offset"), getattr(buckets, sign)
            _pour(into, offset, counts, buckets.scale - scale)
        # Never negative: a bucket that has fewer records than before counts as one without new ones.
        left = {index: count - then.get(index, 0) for index, count in now.items() if count > then.get(index, 0)}
        signs.append((min(left, default=0), tuple(left.get(index, 0) for index in _span(left))))
    (positive_offset, positive), (negative_offset, negative) = signs
    zero = max(0, whole.zero_count - before.zero_count)
    return Buckets(scale, zero, positive_offset, positive, negative_offset, negative)


def _pour(into: dict[int, float], offset: int, counts: tuple[float, ...], shift: int) -> None:
    for index, count in enumerate(counts, offset):
        if count:
            # 2^shift neighbors become one; a shift rounds down, which is right for negative indices, too.
            key = index >> shift
            into[key] = into.get(key, 0) + count


def _shifted(buckets: dict[int, float], shift: int) -> dict[int, float]:
    into: dict[int, float] = {}
    for index, count in buckets.items():
        into[index >> shift] = into.get(index >> shift, 0) + count
    return into


def _span(buckets: dict[int, float], *, reverse: bool = False) -> range:
    if not buckets:
        return range(0)
    low, high = min(buckets), max(buckets)
    return range(high, low - 1, -1) if reverse else range(low, high + 1)


def _boundary(index: int, scale: int) -> float:
    """base^index, where base = 2^(2^-scale), kept within the finite doubles."""
    exponent = index * 2.0**-scale
    # 2^-1074 is the smallest double above 0, 2^1024 the first power that is none.
    return 2.0**exponent if -1074 <= exponent < 1024 else (math.ulp(0.0) if exponent < 0 else 1.7976931348623157e308)


def _representative(index: int, scale: int) -> float:
    low, high = _boundary(index, scale), _boundary(index + 1, scale)
    # 2·lo·hi/(lo + hi), in an order in which nothing overflows.
    if low + high < math.inf:
        return 2.0 * low * (high / (low + high))
    return low * (2.0 / (1.0 + low / high)) if high < math.inf else low
