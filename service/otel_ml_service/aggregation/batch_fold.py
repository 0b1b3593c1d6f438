"""Folds the window that closes, and with it those that come next and look like it.

A request brings tens of steps: as many windows close one after the other, and most often the same writers sent the same
series in each. Folding them together costs little more than folding one, because numpy's price is the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from otel_ml_service.aggregation.piece import Piece, fold_order
from otel_ml_service.aggregation.reduced_windows import Folded, fold
from otel_ml_service.aggregation.step_streams import Attempt
from otel_ml_service.aggregation.step_window import StepWindow

__all__ = ["fold_with_next"]

MAX_POINTS = 2**18
"""Points that are folded together; each takes some 100 bytes meanwhile.

At each call numpy lets Python's lock go, and who decodes meanwhile keeps it for up to a millisecond: with 2¹⁴ the
engine waited for the lock half of its time, and took a fifth less (`python -m tests.benchmarks --only throughput`)."""

MAX_WINDOWS = 64
"""Windows looked at ahead: about what a request brings. Where many are open and none is like another, each would be
looked at whenever one closes; and what is folded ahead is in memory beside the pieces."""


# What folding costs is mostly numpy's price for each call. Short steps arrive many at a time after a pause or in a
# replay, and next ones that look the same are folded in the same calls. The result is kept with each until it closes;
# whatever is added to one of them, or learned about a metric, throws it away.
def fold_with_next(attempt: Attempt, window: StepWindow) -> Folded:
    """Return a window that was taken out of its attempt, folded; what that makes known of open ones is kept there."""
    folded = window.take_folded()
    if folded is None:
        pieces = sorted(window.pieces, key=fold_order)
        following = list(_alike(attempt, pieces))
        folded, *rest = fold([pieces, *(ordered for _, ordered in following)], attempt.stream.reductions)
        for (other, _), ahead in zip(following, rest, strict=True):
            other.keep_folded(ahead)
    return folded


def _alike(attempt: Attempt, pieces: Sequence[Piece]) -> Iterator[tuple[StepWindow, Sequence[Piece]]]:
    """Yield those of the attempt's next windows that look like `pieces`, with theirs in fold order."""
    points = sum(len(piece.partials.series) for piece in pieces)
    # So many that together they have `MAX_POINTS` points, if each has as many as the one that closes.
    for step in islice(attempt.order, min(MAX_WINDOWS, MAX_POINTS // max(points, 1))):
        window = attempt.open[step]
        if window.folded is None and len(window.pieces) == len(pieces):
            ordered = sorted(window.pieces, key=fold_order)
            if all(map(_is_like, ordered, pieces)):
                yield window, ordered


def _is_like(piece: Piece, other: Piece) -> bool:
    return piece.shape is other.shape and piece.source is other.source and piece.reduction is other.reduction
