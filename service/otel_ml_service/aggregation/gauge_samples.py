"""Samples of gauges: of each series a meter has one value in a step, the newest (ADR 0037).

An SDK exports where a gauge stands whenever it is asked, so how many samples of a step there are says how often it was
asked. A cumulative SDK sends the last value of each step again with every export, as if it had been sampled then
(opentelemetry-python, `_LastValueAggregation.collect`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.observation import SeriesKey
from otel_ml_service.aggregation.piece import Piece, Shape
from otel_ml_service.aggregation.point_identities import SeriesOrigin
from otel_ml_service.aggregation.points import Points

__all__ = ["GaugeSamples", "newest_samples"]

_MOST = 200_000
"""Values remembered; what is forgotten is looked for in the step itself."""


class _Newest(NamedTuple):
    time_ns: int
    points: Points


class GaugeSamples:
    """Remembers the newest values of each step; a cache, which a restart of the service empties."""

    def __init__(self) -> None:
        self._newest: dict[tuple[SeriesOrigin, int, int], _Newest] = {}
        self._count = 0

    def repeated(
        self,
        place: SeriesOrigin,
        shape: Shape,
        step: int,
        time_ns: int,
        points: Points,
        closed: Iterable[Piece] | None,
    ) -> npt.NDArray[np.bool_] | None:
        """Return which values are those that were sent last of these series at this step, and remember them.

        None where the step is open: each of its samples counts.

        Args:
            place: where they come from.
            shape: their series.
            step: of all.
            time_ns: when they were sampled.
            points: one of each series.
            closed: what is kept of the step, looked through where nothing is remembered; None where it is open.
        """
        key = (place, shape.number, step)
        # Taken out and put back below, so that the first one in the dictionary is the one that was not used for
        # longest.
        before = self._newest.pop(key, None)
        if before is None:
            self._count += len(points.series)
            self._forget_oldest()
            before = _newest_in(closed or (), place, shape)
        # A sample that comes late does not take the place of a newer one.
        newest = before if before is not None and before.time_ns > time_ns else _Newest(time_ns, points)
        self._newest[key] = newest
        if before is None or closed is None:
            return None
        values, known = points.sums(), before.points.sums()
        same: npt.NDArray[np.bool_] = (known == values) | (np.isnan(known) & np.isnan(values))
        return same

    def _forget_oldest(self) -> None:
        while self._count > _MOST and self._newest:
            oldest = self._newest.pop(next(iter(self._newest)))
            self._count -= len(oldest.points.series)


def _newest_in(pieces: Iterable[Piece], place: SeriesOrigin, shape: Shape) -> _Newest | None:
    """Return the newest samples of one meter in a step."""
    own = (piece for piece in pieces if piece.source.number == place.writer and piece.meter == place.scope)
    newest = max((piece for piece in own if piece.shape is shape), key=lambda piece: piece.newest_ns, default=None)
    return None if newest is None else _Newest(newest.newest_ns, newest.partials)


_Meter = tuple[int, str | None, Reduction]


def newest_samples(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return the pieces without samples that a newer one of the same meter and series took the place of.

    Args:
        pieces: of a step, in fold order.
    """
    meters: dict[_Meter, list[int]] = {}
    for number, piece in enumerate(pieces):
        if piece.meter is not None:
            meters.setdefault((piece.source.number, piece.meter, piece.reduction), []).append(number)
    # A meter with one piece in the step has nothing newer: where all have one, the pieces stay as they are.
    several = [numbers for numbers in meters.values() if len(numbers) > 1]
    if not several:
        return pieces
    kept: dict[int, list[int]] = {}
    for numbers in several:
        kept |= _newest_rows(pieces, numbers)
    left = (_some(piece, kept.get(number)) for number, piece in enumerate(pieces))
    return [piece for piece in left if piece is not None]


def _newest_rows(pieces: Sequence[Piece], numbers: Sequence[int]) -> dict[int, list[int]]:
    """Return which rows of each of the pieces of one meter count."""
    newest: dict[SeriesKey, tuple[int, int, int]] = {}
    for number in numbers:
        times = pieces[number].partials.times[:, 1].tolist()
        for row, (key, time_ns) in enumerate(zip(pieces[number].shape.series, times, strict=True)):
            # Of equal times the later one in fold order: a replay has the same.
            newest[key] = max(newest.get(key, (0, -1, -1)), (time_ns, number, row))
    rows: dict[int, list[int]] = {number: [] for number in numbers}
    for _, number, row in newest.values():
        rows[number].append(row)
    return rows


def _some(piece: Piece, rows: list[int] | None) -> Piece | None:
    if rows is None or len(rows) == len(piece.shape.series):
        return piece
    return piece.some(sorted(rows)) if rows else None
