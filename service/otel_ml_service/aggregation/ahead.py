"""Folds the unit that closes, and with it those that come next and look like it.

A request brings tens of steps: as many units close one after the other, and most often the same writers sent the same
series in each. Folding them together costs little more than folding one, because numpy's price is the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from otel_ml_service.aggregation.folded import Folded, fold
from otel_ml_service.aggregation.lanes import Lane
from otel_ml_service.aggregation.piece import Piece, fold_order
from otel_ml_service.aggregation.unit import Unit

__all__ = ["fold_with_next"]

MAX_POINTS = 2**18
"""Points that are folded together; each takes some 100 bytes meanwhile.

At each call numpy lets Python's lock go, and who decodes meanwhile keeps it for up to a millisecond: with 2¹⁴ the
engine waited for the lock half of its time, and took a fifth less (`python -m tests.benchmarks --only throughput`)."""

MAX_UNITS = 64
"""Units looked at ahead: about what a request brings. Where many steps are open and none is like another, each would be
looked at whenever one closes; and what is folded ahead is in memory beside the pieces."""


# What folding costs is mostly numpy's price for each call. Short steps arrive many at a time after a pause or in a
# replay, and next ones that look the same are folded in the same calls. The result is kept with each until it closes;
# whatever is added to one of them, or learned about a metric, throws it away.
def fold_with_next(lane: Lane, unit: Unit) -> Folded:
    """Return a unit that was taken out of its lane, folded; what that makes known of open ones is kept there."""
    if unit.folded is None:
        pieces = sorted(unit.pieces, key=fold_order)
        following = list(_alike(lane, pieces))
        unit.folded, *rest = fold([pieces, *(ordered for _, ordered in following)], lane.track.reductions)
        for (other, _), folded in zip(following, rest, strict=True):
            other.folded = folded
    folded, unit.folded = unit.folded, None
    return folded


def _alike(lane: Lane, pieces: Sequence[Piece]) -> Iterator[tuple[Unit, Sequence[Piece]]]:
    """Yield those of the lane's next units that look like `pieces`, with theirs in fold order."""
    points = sum(len(piece.partials.series) for piece in pieces)
    for step in islice(lane.order, min(MAX_UNITS, MAX_POINTS // max(points, 1))):
        unit = lane.open[step]
        if unit.folded is None and len(unit.pieces) == len(pieces):
            ordered = sorted(unit.pieces, key=fold_order)
            if all(map(_is_like, ordered, pieces)):
                yield unit, ordered


def _is_like(piece: Piece, other: Piece) -> bool:
    return piece.shape is other.shape and piece.source is other.source and piece.reduction is other.reduction
