"""The timers of a closed unit: every rank's total of each, for those who compare ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otel_ml.wire.reductions import REDUCTIONS, WITHIN
from otel_ml_service.aggregation.piece import Shape, fold_order
from otel_ml_service.aggregation.points import SeriesKey, sums_of
from otel_ml_service.aggregation.unit import Unit
from otel_ml_service.findings.detector import StepTimers

__all__ = ["Timers"]

_PREFIX = "time/"

_MAX_SHAPES = 65_536
"""Shapes that are remembered as looked at."""

_TOTALS = frozenset(name for name in WITHIN if REDUCTIONS[name].point == "moments")
"""What combines durations of a rank in a step: what else is below `time/` is a level, an estimate of what remains, and
says nothing about who is slow."""


class Timers:
    """Finds timers by how a rank's times combine and by their names, once for each shape."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, ...]] = {}

    def of(self, unit: Unit, absent: frozenset[int]) -> StepTimers:
        """Return seconds of each (rank, timer) in `unit`; what a rank's messages and children hold is added."""
        timed_pieces = (piece for piece in unit.pieces if piece.reduction.within in _TOTALS)
        pieces = sorted((piece for piece in timed_pieces if self._timers(piece.shape)), key=fold_order)
        ranks = sorted({piece.source.rank for piece in unit.pieces})
        if not pieces:
            return StepTimers(tuple(ranks), (), np.zeros((len(ranks), 0)), absent)
        phases: dict[str, int] = {}
        columns: dict[int, npt.NDArray[np.int64]] = {}
        for piece in pieces:
            if piece.shape.number not in columns:
                names = self._timers(piece.shape)
                places = [phases.setdefault(name, len(phases)) if name else -1 for name in names]
                columns[piece.shape.number] = np.array(places, dtype=np.int64)
        row_of = {rank: row for row, rank in enumerate(ranks)}
        rows = np.repeat([row_of[piece.source.rank] for piece in pieces], [len(p.partials.series) for p in pieces])
        column = np.concatenate([columns[piece.shape.number] for piece in pieces])
        timed = column >= 0
        cells = rows[timed] * len(phases) + column[timed]
        size = len(ranks) * len(phases)
        # bincount adds one after the other, so the order of the pieces gives the bits.
        sums = sums_of([piece.partials for piece in pieces])[timed]
        seconds = np.bincount(cells, sums, size).astype(np.float64)
        seconds[np.bincount(cells, minlength=size) == 0] = np.nan
        return StepTimers(tuple(ranks), tuple(phases), seconds.reshape(len(ranks), len(phases)), absent)

    def _timers(self, shape: Shape) -> tuple[str, ...]:
        """Return the phase of each series, empty for what is no timer; nothing at all where none is."""
        names = self._names.get(shape.number)
        if names is None:
            if len(self._names) >= _MAX_SHAPES:
                self._names.clear()
            names = tuple(_phase(key) for key in shape.series)
            names = self._names[shape.number] = names if any(names) else ()
        return names


def _phase(key: SeriesKey) -> str:
    """Return what is timed; empty for what is no timer.

    Examples:
        >>> _phase(SeriesKey("time/forward", (), "moments")), _phase(SeriesKey("loss", (), "moments"))
        ('forward', '')
    """
    if not key.name.startswith(_PREFIX):
        return ""
    return key.name.removeprefix(_PREFIX) + "".join(f"/{name}/{value}" for name, value in key.attributes)
