"""Whose values made a metric NaN or infinite: what ranks have in common then tells nothing of who was first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml_service.aggregation.naming import metric_name
from otel_ml_service.aggregation.observation import Attributes
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.points import sums_of
from otel_ml_service.aggregation.reduced_windows import Folded

__all__ = ["ranks_not_finite"]


def ranks_not_finite(folded: Folded, role: str, axis: str) -> dict[str, float]:
    """Return published name → on how many ranks a metric of a step is not finite, and the lowest of them.

    The lowest is left out where it is every rank that has values. Nothing of one rank alone, nor of values that are
    finite until they are reduced.
    """
    pieces = folded.pieces
    if not pieces or pieces[0].source.rank == pieces[-1].source.rank:  # they are in the order of ranks
        return {}
    broken = {
        (value.name, value.attributes)
        for _, reduced in folded.results
        for value in reduced.values
        # Of finite numbers alone x - x is 0: asked of each value of each row, without a call.
        if value.rank is None and value.value - value.value != 0.0
    }
    with_role = bool(broken) and all(piece.source.with_role for piece in pieces)
    told: dict[str, float] = {}
    for name, attributes in sorted(broken):
        of_rank = _of_rank(pieces, name, attributes)
        found = sorted(rank for rank, is_finite in of_rank.items() if not is_finite)
        if len(of_rank) > 1 and found:
            of = {"ranks": len(found), "rank": found[0]} if len(found) < len(of_rank) else {"ranks": len(found)}
            for which, number in of.items():
                own = f"{RESERVED_PREFIX}nonfinite_{which}/{name}"
                told[metric_name(role, axis, own, attributes, with_role)] = float(number)
    return told


def _of_rank(pieces: Sequence[Piece], name: str, attributes: Attributes) -> dict[int, bool]:
    """Return rank → whether all its values of a series are finite."""
    of_rank: dict[int, bool] = {}
    for piece in pieces:
        rows = [row for row, (one, of, _) in enumerate(piece.shape.joined) if one == name and of == attributes]
        if rows:
            is_finite = bool(np.isfinite(sums_of([piece.partials])[rows]).all())
            of_rank[piece.source.rank] = of_rank.get(piece.source.rank, True) and is_finite
    return of_rank
