"""What all reductions make of a unit's pieces: of one unit, or of several at once."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not
from typing import NamedTuple

from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.aggregation.piece import Piece
from otel_ml_exporters.aggregation.reduce import Reduced, reduce_units
from otel_ml_exporters.aggregation.samples import newest_samples

__all__ = ["Folded", "fold"]


class Folded(NamedTuple):
    """The pieces in fold order, and what each reduction makes of those that ask for it."""

    pieces: Sequence[Piece]
    results: Sequence[tuple[Reduction, Reduced]]


def fold(units: Sequence[Sequence[Piece]]) -> list[Folded]:
    """Reduce units whose pieces are in fold order, and alike in shape, source and reduction at each place."""
    counted = [newest_samples(pieces) for pieces in units]
    if any(map(is_not, counted, units)):  # what is left of each may differ
        return [Folded(pieces, *_reduced([left])) for pieces, left in zip(units, counted, strict=True)]
    return [Folded(pieces, results) for pieces, results in zip(units, _reduced(units), strict=True)]


def _reduced(units: Sequence[Sequence[Piece]]) -> list[list[tuple[Reduction, Reduced]]]:
    places: dict[Reduction, list[int]] = {}
    for place, piece in enumerate(units[0]):
        places.setdefault(piece.reduction, []).append(place)
    ordered = sorted(places, key=str)
    found = [
        reduce_units(reduction, [[pieces[place] for place in places[reduction]] for pieces in units])
        for reduction in ordered
    ]
    return [
        [(reduction, results[number]) for reduction, results in zip(ordered, found, strict=True)]
        for number in range(len(units))
    ]
