"""Points of which nobody said how they are reduced, made fit for what somebody else said (ADR 0036).

A single value is whatever it has to be: a bucket of a distribution, the first and the last of its writer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import STATISTICS, Statistic
from otel_ml_service.aggregation.fold import COUNT, SUM, untold
from otel_ml_service.aggregation.piece import Piece, Shape
from otel_ml_service.aggregation.points import Buckets, Floats, Partials
from otel_ml_service.aggregation.quantiles import FULL_SCALE

__all__ = ["bucket_of", "converted", "lacking", "untold_of"]


def converted(piece: Piece, reduction: Reduction) -> list[Piece]:
    """Return pieces from which `reduction` can be made, where a sender without a wish has not asked for it."""
    if reduction.within is None and reduction.needs_buckets:
        piece = piece._replace(partials=_with_buckets(piece.partials.unpack()))
    splits = reduction.needs_order and (reduction.needs_moments or reduction.needs_buckets)
    return [piece, _as_order(piece)] if splits else [piece]


def _with_buckets(partials: Partials) -> Partials:
    known = partials.buckets or (None,) * len(partials.series)
    counts, sums = partials.stats[:, COUNT].tolist(), partials.stats[:, SUM].tolist()
    found = tuple(
        bucket_of(value) if bucket is None and count == 1 else bucket
        for bucket, count, value in zip(known, counts, sums, strict=True)
    )
    return partials._replace(buckets=found)


def bucket_of(value: float) -> Buckets:
    """Return the buckets of one value, as a worker makes them: a value that is not finite has none."""
    if value == 0.0:
        return Buckets(FULL_SCALE, 1, 0, (), 0, ())
    if not math.isfinite(value):
        return Buckets(FULL_SCALE, 0, 0, (), 0, ())
    # The bucket (b^index, b^(index + 1)], b = 2^(1/64): a value on a bound is in the bucket below it.
    index = math.ceil(math.log2(abs(value)) * 2**FULL_SCALE) - 1
    return Buckets(FULL_SCALE, 0, index, (1,), 0, ()) if value > 0 else Buckets(FULL_SCALE, 0, 0, (), index, (1,))


def _as_order(piece: Piece) -> Piece:
    """Return the same as the Gauges that a worker sends where it knows that the first or last value is asked for."""
    series = tuple(key._replace(kind="order") for key in piece.shape.series)
    # The shape has no number of the run (-1): it lives as long as this fold, and nothing stores it.
    partials = piece.partials.unpack()._replace(series=series, buckets=None)
    return piece._replace(shape=Shape(-1, series), partials=partials)


def untold_of(asked: Sequence[Statistic], stats: Floats) -> str:
    """Return what a point does not tell of that which has to be asked for; nothing where it tells all of it."""
    return next((one.called for one in asked if untold(stats[None], STATISTICS.index(one))[0]), "")


def lacking(piece: Piece, reduction: Reduction) -> dict[str, str]:
    """Return the metrics of which a piece does not tell what a reduction needs, and what that is."""
    asked = reduction.extra_statistics
    if not (asked or reduction.needs_buckets or reduction.needs_order or piece.reduction.needs_order):
        return {}
    partials = piece.partials.unpack()
    # A point of one record tells everything that can be asked of it.
    several = np.flatnonzero(partials.stats[:, COUNT] > 1).tolist()
    found: dict[str, str] = {}
    for row in several:
        key, buckets = partials.series[row], partials.buckets
        if reduction.within is None and reduction.needs_buckets and (buckets is None or buckets[row] is None):
            found[key.name] = "the distribution"
        elif untold := untold_of(asked, partials.stats[row]):
            found[key.name] = f"the {untold}"
        elif reduction.needs_order and key.kind == "moments":
            found[key.name] = "the order"
    if not reduction.needs_moments or piece.reduction.needs_moments or piece.reduction.needs_buckets:
        return found
    # Its writer sent Gauges alone: each is one record of perhaps many, of which there is no sum.
    return found | {key.name: "the sum" for key in partials.series if key.kind == "order"}
