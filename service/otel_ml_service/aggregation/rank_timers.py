"""The timers of a closed window: every rank's total of each, for those who compare ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml.wire.reductions import REDUCTIONS, WITHIN
from otel_ml_service.aggregation.piece import Piece, Shape, fold_order
from otel_ml_service.aggregation.points import SeriesKey, sums_of
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.findings.phases import STEP, UNTIMED, in_order, is_amount
from otel_ml_service.findings.step_timers import StepTimers, only_times

__all__ = ["RankTimers", "stage_in"]

Floats = npt.NDArray[np.float64]

_PREFIX = "time/"

_STAGES = ("pp", "stage", "pipeline")
"""Dimensions of a topology along which ranks do different work."""

_MAX_SHAPES = 65_536
"""Shapes that are remembered as looked at."""

_MAX_LAYOUTS = 16
"""Combinations of ranks and shapes of which it is remembered where their points belong."""

_MOST_AMOUNTS = 4
"""Metrics of a window that say how much a rank was given to do; the first ones by name."""

_TOTALS = frozenset(name for name in WITHIN if REDUCTIONS[name].point == "moments")
"""What combines durations of a rank in a step: what else is below `time/` is a level, an estimate of what remains, and
says nothing about who is slow."""


class _Layout(NamedTuple):
    """Where the points of a window's timers belong.

    Attributes:
        phases: names of timers, in their order.
        timed: [points], which of them are timers.
        cells: [timers], the cell of [ranks, phases] that each is added to.
        missing: [cells], those of timers that a rank does not have.
    """

    phases: tuple[str, ...]
    timed: npt.NDArray[np.bool_]
    cells: npt.NDArray[np.int64]
    missing: npt.NDArray[np.bool_]


class RankTimers:
    """Finds timers by how a rank's times combine and by their names, once for each shape."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, ...]] = {}
        self._amounts: dict[int, tuple[tuple[int, str], ...]] = {}
        self._layouts: dict[tuple[object, ...], _Layout] = {}

    def of(self, window: StepWindow, absent: frozenset[int]) -> StepTimers:
        """Return seconds of each (rank, timer) in `window`; what a rank's messages and children hold is added."""
        timed_pieces = (piece for piece in window.pieces if piece.reduction.within in _TOTALS)
        pieces = sorted((piece for piece in timed_pieces if self._timers(piece.shape)), key=fold_order)
        # Of a rank and its children any: they share host and place.
        source_of = {piece.source.rank: piece.source for piece in window.pieces}
        ranks = tuple(sorted(source_of))
        sources = [source_of[rank] for rank in ranks]
        phases, seconds = self._seconds(pieces, ranks) if pieces else ((), np.zeros((len(ranks), 0)))
        amounts, given = self._given(window, ranks) if pieces else ((), np.zeros((len(ranks), 0)))
        return StepTimers(
            ranks,
            phases,
            seconds,
            absent,
            stages=tuple(stage_in(source.topology) for source in sources),
            hosts=tuple(source.host for source in sources),
            topologies=tuple(source.topology for source in sources),
            amounts=amounts,
            given=given,
            processes=tuple(source.pool for source in sources),
            ended_ns=_ends(pieces, ranks),
        )

    def _seconds(self, pieces: Sequence[Piece], ranks: tuple[int, ...]) -> tuple[tuple[str, ...], Floats]:
        """Return the phases, and seconds [ranks, phases]; NaN where a rank has no such timer, or says no time."""
        phases, timed, cells, missing = self._layout(pieces, ranks)
        # bincount adds one after the other, so the order of the pieces gives the bits.
        sums = sums_of([piece.partials for piece in pieces])[timed]
        seconds = only_times(np.bincount(cells, sums, len(missing)).astype(np.float64, copy=False))
        seconds[missing] = np.nan
        seconds = seconds.reshape(len(ranks), len(phases))
        if phases[0] == UNTIMED:
            # The sum is of all timers, `step` among them; of timers inside of others it has too much, hence the 0,
            # until spans show which these are (`frontier.in_no_timer()`).
            seconds[:, 0] = np.maximum(2 * seconds[:, phases.index(STEP)] - np.nansum(seconds, axis=1), 0.0)
        return phases, seconds

    def _layout(self, pieces: Sequence[Piece], ranks: tuple[int, ...]) -> _Layout:
        """Return where the points of pieces belong: nearly always as in the step before."""
        # In fold order, so the same messages give the same key in whatever order they came.
        key = ranks, *((piece.source.rank, piece.shape.number) for piece in pieces)
        found = self._layouts.get(key)
        if found is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            found = self._layouts[key] = self._laid_out(pieces, ranks)
        return found

    def _laid_out(self, pieces: Sequence[Piece], ranks: Sequence[int]) -> _Layout:
        phases = self._phases(pieces)
        column_of, row_of = ({key: place for place, key in enumerate(keys)} for keys in (phases, ranks))
        names_of = [self._timers(piece.shape) for piece in pieces]
        # [points]: the phase of each, -1 for what is not a timer.
        column = np.array([column_of[name] if name else -1 for names in names_of for name in names], dtype=np.int64)
        rows = np.repeat([row_of[piece.source.rank] for piece in pieces], [len(names) for names in names_of])
        timed = column >= 0
        cells = rows[timed] * len(phases) + column[timed]
        return _Layout(phases, timed, cells, np.bincount(cells, minlength=len(ranks) * len(phases)) == 0)

    def _phases(self, pieces: Sequence[Piece]) -> tuple[str, ...]:
        """Return the phases of a window in their order; what a step takes outside of its timers comes before them.

        Whoever does something between two steps is late in the next one, where the others wait.
        """
        # Ranks that sent the same shapes have the same timers: each combination of shapes is looked at once.
        shapes_of: dict[int, tuple[int, ...]] = {}
        for piece in pieces:
            rank = piece.source.rank
            shapes_of[rank] = (*shapes_of.get(rank, ()), piece.shape.number)
        named = (
            [name for shape in shapes for name in self._names[shape] if name]
            for shapes in dict.fromkeys(shapes_of.values())
        )
        phases = in_order(tuple(dict.fromkeys(names)) for names in named)
        return (UNTIMED, *phases) if STEP in phases and len(phases) > 1 else phases

    def _given(self, window: StepWindow, ranks: Sequence[int]) -> tuple[tuple[str, ...], Floats]:
        """Return which metrics say how much each rank was given to do, and [ranks, metrics] how much."""
        counting = sorted((piece for piece in window.pieces if self._amounts_in(piece.shape)), key=fold_order)
        if not counting:
            return (), np.zeros((len(ranks), 0))
        names = sorted({name for piece in counting for _, name in self._amounts_in(piece.shape)})[:_MOST_AMOUNTS]
        column_of, row_of = ({key: place for place, key in enumerate(keys)} for keys in (names, ranks))
        given = np.full((len(ranks), len(names)), np.nan)
        for piece in counting:
            sums = sums_of([piece.partials])
            for place, name in self._amounts_in(piece.shape):
                if name in column_of:
                    cell = row_of[piece.source.rank], column_of[name]
                    # NaN is what was not given yet, and a value that is none.
                    given[cell] = np.nansum((given[cell], sums[place]))
        return tuple(names), given

    def _amounts_in(self, shape: Shape) -> tuple[tuple[int, str], ...]:
        """Return place and name of the series that count what a rank is given to do."""
        found = self._amounts.get(shape.number)
        if found is None:
            if len(self._amounts) >= _MAX_SHAPES:
                self._amounts.clear()
            # A metric of `mean,last` is two points, a Histogram and a Gauge: the Gauge would be counted once more.
            moments = {key.name for key in shape.series if key.kind == "moments"}
            found = self._amounts[shape.number] = tuple(
                (place, key.name)
                for place, key in enumerate(shape.series)
                if is_amount(key.name) and (key.kind == "moments" or key.name not in moments)
            )
        return found

    def _timers(self, shape: Shape) -> tuple[str, ...]:
        """Return the phase of each series, empty for what is not a timer; nothing at all where none is."""
        names = self._names.get(shape.number)
        if names is None:
            if len(self._names) >= _MAX_SHAPES:
                self._names.clear()
            names = tuple(_phase(key) for key in shape.series)
            names = self._names[shape.number] = names if any(names) else ()
        return names


def _ends(pieces: Sequence[Piece], ranks: Sequence[int]) -> tuple[int, ...]:
    """Return when each rank recorded the last of its timers; nothing where one has none."""
    newest: dict[int, int] = {}
    for piece in pieces:
        newest[piece.source.rank] = max(newest.get(piece.source.rank, 0), piece.newest_ns)
    return tuple(newest[rank] for rank in ranks) if len(newest) == len(ranks) else ()


def _phase(key: SeriesKey) -> str:
    """Return what is timed; empty for what is not a timer.

    Examples:
        >>> _phase(SeriesKey("time/forward", (), "moments")), _phase(SeriesKey("loss", (), "moments"))
        ('forward', '')
    """
    if not key.name.startswith(_PREFIX):
        return ""
    return key.name.removeprefix(_PREFIX) + "".join(f"/{name}/{value}" for name, value in key.attributes)


def stage_in(topology: Mapping[str, int]) -> int | None:
    """Return the pipeline stage of a rank with these coordinates; None where it says none."""
    return next((topology[name] for name in _STAGES if name in topology), None)
