"""The points of many fragments as one table of rows in fold order, each with its window, series, rank and writer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.fold import COUNT, MAX, STATS, SUM, Rows, layers
from otel_ml_service.aggregation.piece import ColumnId, Piece
from otel_ml_service.aggregation.points import Attributes, Buckets, ExplicitBuckets, Points, stats_of, times_of

__all__ = ["Table", "tabulate"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class PerWriter(NamedTuple):
    """`rows` with a column for each (series, writer), and `outer`: where the folded ones belong."""

    rows: Rows
    outer: Rows


class Table(NamedTuple):
    """Rows of one reduction, of one window or of several in which the same writers sent the same.

    Column c of the rows is the series `c % width` of window `c // width`.

    Attributes:
        width: how many series a window has.
        series: [width], (name, attributes).
        order: [width], series that `last` and `first` may use.
        moments: [width], series that every other reduction may use.
        pool: [rows], which writer (with its children) a row is from.
        lone, lone_ranks: every writer, or rank, has at most one row a column.
        exact: rows are single values, after `within`.
        in_pairs: [rows], of a writer that sends its last value first, and then its first one where that is another;
            None where no row is.
        buckets: one entry a row; empty where no row has buckets.
    """

    width: int
    series: Sequence[tuple[str, Attributes]]
    order: Flags
    moments: Flags
    rows: Rows
    pool: Ints
    lone: bool
    lone_ranks: bool
    exact: bool
    in_pairs: Flags | None
    buckets: Sequence[Buckets | ExplicitBuckets | None]

    def rows_by_column(self) -> Sequence[Ints]:
        """Return the row numbers of each column."""
        counts = np.bincount(self.rows.column, minlength=self.rows.columns)
        return np.split(np.argsort(self.rows.column, kind="stable"), np.cumsum(counts))[:-1]

    def by_rank(self) -> tuple[Rows, Ints, Ints]:
        """Return rows with a column for each (series, rank), and the series and rank of each such column."""
        rows, column, rank = self._keyed(self.rows.rank, distinct=self.lone_ranks)
        return rows, column, rank

    def by_writer(self) -> PerWriter:
        """Return rows with a column for each (series, writer)."""
        rows, column, _ = self._keyed(self.pool, distinct=self.lone)
        first = _edge_rows(rows, last=False)
        last = _edge_rows(rows, last=True)
        times = np.stack((self.rows.times[first, 0], self.rows.times[last, 1]), axis=1)
        outer = Rows(self.rows.stats[first], times, self.rows.rank[first], column, self.rows.columns, False)
        return PerWriter(rows, outer)

    def one_per_writer(self, edge: str) -> Rows:
        """Return the first or last row of each (series, writer)."""
        if self.lone:
            return self.rows
        rows, column, _ = self._keyed(self.pool, distinct=self.lone)
        chosen = _edge_rows(rows, last=edge == "last", in_pairs=self.in_pairs)
        return Rows(
            self.rows.stats[chosen], self.rows.times[chosen], self.rows.rank[chosen], column, self.rows.columns, False
        )

    def of_values(self, outer: Rows, values: Floats, present: Flags) -> Table:
        """Return the table in which row i is the one value `values[i]`, where it is present."""
        kept = np.flatnonzero(present)
        stats = np.full((len(kept), STATS), np.nan)
        stats[:, COUNT] = 1.0
        stats[:, SUM : MAX + 1] = values[kept, None]
        rows = Rows(stats, outer.times[kept], outer.rank[kept], outer.column[kept], outer.columns, False)
        everything = np.ones(len(self.series), dtype=bool)
        pool = np.arange(len(kept))
        return Table(self.width, self.series, everything, everything, rows, pool, True, False, True, None, ())

    def _keyed(self, label: Ints, *, distinct: bool) -> tuple[Rows, Ints, Ints]:
        """Split each column by `label`; return the rows, and the (old column, label) of each new column."""
        rows = self.rows
        if distinct:
            # Each row is a column of its own: nothing is to be sorted.
            alone = rows._replace(column=np.arange(len(label)), columns=len(label), rectangular=True)
            return alone, rows.column, label
        width = int(label.max(initial=0)) + 1
        # One number for each (column, label), which is divided into both again.
        keys, column = np.unique(rows.column * width + label, return_inverse=True)
        return rows._replace(column=column, columns=len(keys), rectangular=False), keys // width, keys % width


def _edge_rows(rows: Rows, *, last: bool, in_pairs: Flags | None = None) -> Ints:
    """Return the number of each column's first or last row, of a pair that of the half which is meant."""
    chosen = np.zeros(rows.columns, dtype=np.int64)
    # Of a column's rows the one that is meant, the one beside it, and which of a row's two times says when that was.
    edge, beside, moment = (-1, -2, 1) if last else (0, 1, 0)
    for columns, index in layers(rows):
        chosen[columns] = index[edge]
        if in_pairs is not None and len(index) > 1:
            times, others = rows.times[index[edge], moment], rows.times[index[beside], moment]
            is_other = (others >= times if last else others <= times) & in_pairs[index[edge]] & in_pairs[index[beside]]
            chosen[columns] = np.where(is_other, index[beside], index[edge])
    return chosen


def tabulate(reduction: Reduction, windows: Sequence[Sequence[Piece]]) -> Table:
    """Lay out the pieces of `windows`: each in fold order, at each place of the same shape and from the same source.

    A metric that is reduced by order and by something else (`mean,last`) arrives as two points of the same name, a
    Gauge and a Histogram: two columns. Otherwise each kind of point yields what it can, in one column.
    """
    if reduction.over is not None:
        windows = [_one_per_coordinate(pieces, reduction.over) for pieces in windows]
    places = windows[0]
    split = reduction.needs_order and (reduction.needs_moments or reduction.needs_buckets)
    ids = {id(piece.shape): piece.shape.split if split else piece.shape.joined for piece in places}
    numbers: dict[ColumnId, int] = {}
    columns = {
        shape: np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
        for shape, keys in ids.items()
    }
    distinct = all(len(set(keys)) == len(keys) for keys in ids.values())
    sizes = [len(windows) * len(piece.partials.series) for piece in places]
    pools: dict[str, int] = {}
    pool = [pools.setdefault(piece.source.pool, len(pools)) for piece in places]
    # Place by place, and the windows of a place side by side: so the rows of each column stay in fold order, and what
    # has one layout is read at once.
    points = [piece.partials for piece in chain.from_iterable(zip(*windows, strict=True))]
    stats = stats_of(points)
    # [windows, 1]: the first column of each window.
    begins = len(numbers) * np.arange(len(windows))[:, None]
    rows = Rows(
        stats,
        # Nobody looks at the times: zeros that take no memory.
        times_of(points) if reduction.is_by_time else np.broadcast_to(np.int64(0), (len(stats), 2)),
        np.repeat(np.array([piece.source.rank for piece in places], dtype=np.int64), sizes),
        np.concatenate([(begins + columns[id(piece.shape)]).reshape(-1) for piece in places]),
        len(windows) * len(numbers),
        # All pieces have each series once: row r is of column r % columns.
        distinct and len(columns) == 1,
    )
    order, moments = _families(numbers)
    return Table(
        len(numbers),
        [(name, attributes) for name, attributes, _ in numbers],
        order if split else np.ones(len(numbers), dtype=bool),
        moments if split else np.ones(len(numbers), dtype=bool),
        rows,
        np.repeat(np.array(pool, dtype=np.int64), sizes),
        distinct and len(pools) == len(places),
        distinct and len({piece.source.rank for piece in places}) == len(places),
        False,
        _paired(reduction, places, sizes),
        _buckets(points),
    )


def _paired(reduction: Reduction, places: Sequence[Piece], sizes: Sequence[int]) -> Flags | None:
    if len(reduction.edges) < 2:
        return None
    return np.repeat(np.array([_sends_both(piece.reduction) for piece in places], dtype=bool), sizes)


def _sends_both(reduction: Reduction) -> bool:
    """Whether a writer sends first and last records as such: its program asked for both, by name or by a glob."""
    return not reduction.unsaid or len(reduction.edges) == 2


def _families(columns: Iterable[ColumnId]) -> tuple[Flags, Flags]:
    """Return which columns serve `last` and `first`, and which the others: a lone kind serves both."""
    known = set(columns)
    order = [gauge or (name, attributes, True) not in known for name, attributes, gauge in columns]
    moments = [not gauge or (name, attributes, False) not in known for name, attributes, gauge in columns]
    return np.array(order, dtype=bool), np.array(moments, dtype=bool)


def _buckets(every: Sequence[Points]) -> Sequence[Buckets | ExplicitBuckets | None]:
    if all(points.buckets is None for points in every):
        return ()
    return [bucket for points in every for bucket in points.buckets or [None] * len(points.series)]


def _one_per_coordinate(pieces: Sequence[Piece], dimension: str) -> Sequence[Piece]:
    """Of the ranks with equal coordinate keep, for each series, the lowest that recorded it."""
    owners: dict[tuple[int, ColumnId], int] = {}
    kept: list[Piece] = []
    for piece in pieces:
        coordinate = piece.source.topology.get(dimension)
        if coordinate is None:
            kept.append(piece)
            continue
        rank = piece.source.rank
        # Pieces come in fold order, so the first rank with a series is the lowest.
        rows = [i for i, key in enumerate(piece.shape.joined) if owners.setdefault((coordinate, key), rank) == rank]
        if len(rows) == len(piece.shape.joined):
            kept.append(piece)
        elif rows:
            kept.append(piece.some(rows))
    return kept
