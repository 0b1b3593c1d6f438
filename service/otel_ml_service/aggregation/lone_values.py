"""Windows to which each writer sent one value of each series: nearly all there are, and reduced without a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.piece import Piece
from otel_ml_service.aggregation.points import sums_of

__all__ = ["lone_values"]

Floats = npt.NDArray[np.float64]

_ITSELF = frozenset({None, "sum", "mean", "min", "max", "last", "first"})
"""What makes of one value of a writer that value."""


def _sum(values: Floats) -> Floats:
    # One after the other, as `fold.py` adds: the same rows give the same bits.
    found: Floats = np.add.accumulate(values, axis=0)[-1]
    return found


_ACROSS: Mapping[str, Callable[[Floats], Floats]] = {
    "mean": lambda values: _sum(values) / float(len(values)),
    "sum": _sum,
    "min": lambda values: np.minimum.reduce(values, axis=0),
    "max": lambda values: np.maximum.reduce(values, axis=0),
    "count": lambda values: np.full(values.shape[1], float(len(values))),
}
"""What each reduction makes of [writers, series]."""


def lone_values(reduction: Reduction, windows: Sequence[Sequence[Piece]]) -> Sequence[Floats] | None:
    """Return [windows, series] of each of `reduction.across`; None where a table is needed for it.

    That is where a value is not finite or becomes so, too: which statistics then count is said in one place.

    Args:
        reduction: of all pieces.
        windows: their pieces in fold order, at each place of the same shape and from the same source.
    """
    if reduction.within not in _ITSELF or reduction.over is not None or not _ACROSS.keys() >= {*reduction.across}:
        return None
    if not windows[0] or not _are_lone(windows):
        return None
    sums = sums_of([piece.partials for piece in chain.from_iterable(zip(*windows, strict=True))])
    # writers × (windows × series): `zip(*windows)` puts the windows of a writer side by side.
    values = sums.reshape(len(windows[0]), -1)
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(_sum(values)).all():  # a sum that is finite has finite parts
            return None
        return [_ACROSS[across](values).reshape(len(windows), -1) for across in reduction.across]


def _are_lone(windows: Sequence[Sequence[Piece]]) -> bool:
    """Whether all pieces are of one shape, in which no name comes twice, and those of a window of a writer each."""
    pieces = windows[0]
    shape = pieces[0].shape
    return (
        all(piece.shape is shape for piece in pieces)
        and all(piece.partials.is_lone for piece in chain.from_iterable(windows))
        and len({piece.source.pool for piece in pieces}) == len(pieces)
        and len({*shape.joined}) == len(shape.joined)
    )
