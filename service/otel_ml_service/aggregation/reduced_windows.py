"""What all reductions make of a window's pieces: of one window, or of several at once."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_not
from typing import NamedTuple

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.converted_points import converted
from otel_ml_service.aggregation.gauge_samples import newest_samples
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.reduce import Reduced, reduce_windows
from otel_ml_service.aggregation.reductions import Part, Reductions

__all__ = ["Folded", "fold"]


class Folded(NamedTuple):
    """The pieces in fold order, and what each reduction makes of those that it is used for."""

    pieces: Sequence[Piece]
    results: Sequence[tuple[Reduction, Reduced]]


def fold(windows: Sequence[Sequence[Piece]], reductions: Reductions) -> list[Folded]:
    """Reduce windows whose pieces are in fold order, and alike in shape, source and reduction at each place."""
    counted = [newest_samples(pieces) for pieces in windows]
    if any(map(is_not, counted, windows)):  # what is left of each may differ
        return [Folded(pieces, *_reduced([left], reductions)) for pieces, left in zip(windows, counted, strict=True)]
    return [Folded(pieces, results) for pieces, results in zip(windows, _reduced(windows, reductions), strict=True)]


def _reduced(windows: Sequence[Sequence[Piece]], reductions: Reductions) -> list[list[tuple[Reduction, Reduced]]]:
    places: dict[Reduction, list[tuple[int, Part]]] = {}
    for place, piece in enumerate(windows[0]):
        for part in reductions.parts(piece):
            places.setdefault(part.reduction, []).append((place, part))
    # Rows have their values in one order, whoever was heard first.
    ordered = sorted(places, key=str)
    found = [
        reduce_windows(reduction, [_pieces(pieces, places[reduction]) for pieces in windows]) for reduction in ordered
    ]
    return [
        [(reduction, results[number]) for reduction, results in zip(ordered, found, strict=True)]
        for number in range(len(windows))
    ]


def _pieces(pieces: Sequence[Piece], places: Sequence[tuple[int, Part]]) -> list[Piece]:
    return [piece for place, part in places for piece in _of(pieces[place], part)]


def _of(piece: Piece, part: Part) -> list[Piece]:
    some = piece if part.rows is None else piece.some(part.rows, part.shape)
    return [some] if _is_as_sent(piece.reduction, part.reduction) else converted(some, part.reduction)


def _is_as_sent(sent: Reduction, used: Reduction) -> bool:
    # `unsaid` is left out: it tells which parts are defaults, and changes nothing of what is made.
    return (sent.across, sent.within, sent.over) == (used.across, used.within, used.over)
