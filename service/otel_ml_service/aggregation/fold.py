"""The one place that adds up: rows of partial states, folded in a fixed order, a column at a time.

Rows come in the order (role, rank, instance, seq). Every sum runs along it one row after the other
(`np.add.accumulate` is sequential by definition, while `np.sum` may add pairwise), so that the same rows
give the same bits however they arrived. The columns of one matrix are independent series.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml.wire import reductions as table

__all__ = [
    "COUNT",
    "M2",
    "MAX",
    "MIN",
    "STATS",
    "SUM",
    "WSUM",
    "WXSUM",
    "Rows",
    "columns_of",
    "fold_rows",
    "layers",
    "mean_of",
    "untold",
    "weighed",
]

COUNT, SUM, MIN, MAX, M2, WSUM, WXSUM = map(
    table.STATISTICS.index,
    (table.COUNT, table.SUM, table.MIN, table.MAX, table.M2, table.WSUM, table.WXSUM),
)
"""Columns of `Partials.stats`."""

STATS = len(table.STATISTICS)

ALL = frozenset(range(STATS))

_SUMS = [(column, statistic) for column, statistic in enumerate(table.STATISTICS) if statistic.of is not None]
_NEUTRAL = np.array([statistic.neutral for statistic in table.STATISTICS])

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Rows(NamedTuple):
    """Partial states in fold order.

    Attributes:
        stats: [rows, statistics].
        times: [rows, 2], ns.
        rank: [rows].
        column: [rows], which series the row belongs to.
        columns: how many series there are.
        rectangular: row r belongs to column `r % columns`: all writers sent the same.
    """

    stats: Floats
    times: Ints
    rank: Ints
    column: Ints
    columns: int
    rectangular: bool


def columns_of(row: table.Row) -> frozenset[int]:
    """Return the columns that a reduction is made of, besides count and sum."""
    return frozenset(map(table.STATISTICS.index, row.needs))


def layers(rows: Rows) -> Iterator[tuple[Ints, Ints]]:
    """Yield (columns [c], row numbers [m, c]) such that together every row comes once, in fold order downwards.

    Columns with equally many rows come together, so no matrix has holes.
    """
    if rows.rectangular:
        if rows.columns:
            # All columns have equally many rows, which stand in the order of the columns: nothing is to be sorted.
            yield np.arange(rows.columns), np.arange(len(rows.column)).reshape(-1, rows.columns)
        return
    order = np.argsort(rows.column, kind="stable")
    counts = np.bincount(rows.column, minlength=rows.columns)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    for height in np.unique(counts[counts > 0]):
        chosen = np.flatnonzero(counts == height)
        # [height, chosen]: of each of these columns the numbers of its rows, in fold order, for the sort is stable.
        yield chosen, order[starts[chosen] + np.arange(height)[:, None]]


def fold_rows(rows: Rows, wanted: Collection[int] = ALL) -> Floats:
    """Return [columns, statistics]: each column's rows combined; count 0 where a column has none.

    COUNT and SUM are always there, of the others only the `wanted` ones: a mean need not pay for a variance.

    M2 by Chan, Golub, LeVeque (1979), which does not cancel as E[x²] − E[x]² does. M2 is NaN where a row of
    several records did not bring it; WSUM, WXSUM are NaN where no row had weights, else a row without
    weights counts with weight 1 per record. MIN, MAX are NaN where a row did not bring them.
    """
    result = np.full((rows.columns, STATS), np.nan)
    result[:, COUNT] = 0.0
    # NaN and Inf are data here: inf - inf is NaN, as IEEE says, and not worth a warning.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for chosen, index in layers(rows):
            block = rows.stats.reshape(*index.shape, STATS) if rows.rectangular else rows.stats[index]
            result[chosen] = _fold_block(block, wanted)
    return result


def _fold_block(block: Floats, wanted: Collection[int]) -> Floats:
    """Combine [rows, columns, statistics] along the rows."""
    if not block[:, :, COUNT].all():
        block = _without_empty(block)
    count, total = block[:, :, COUNT], block[:, :, SUM]
    out = np.full((block.shape[1], STATS), np.nan)
    # Running totals, of which `_chan` takes those before each row.
    counts, sums = np.add.accumulate(count, axis=0), np.add.accumulate(total, axis=0)
    out[:, COUNT], out[:, SUM] = counts[-1], sums[-1]
    if MIN in wanted:
        out[:, MIN] = np.minimum.reduce(block[:, :, MIN], axis=0)
    if MAX in wanted:
        out[:, MAX] = np.maximum.reduce(block[:, :, MAX], axis=0)
    if M2 in wanted:
        out[:, M2] = _chan(count, total, _m2(block), counts, sums)
    if WSUM in wanted:
        out[:, WSUM], out[:, WXSUM] = _weights(block, count, total)
    for column, statistic in _SUMS:
        if column in wanted:
            out[:, column] = np.add.accumulate(_terms(block, column, statistic), axis=0)[-1]
    return out


def _without_empty(block: Floats) -> Floats:
    """Make rows of no records neutral: they change no minimum, maximum or sum."""
    return np.where(block[:, :, COUNT : COUNT + 1] == 0, _NEUTRAL, block)


def _m2(block: Floats) -> Floats:
    sent = block[:, :, M2]
    lone = np.isnan(sent) & (block[:, :, COUNT] <= 1)
    return np.where(lone, block[:, :, SUM] * 0.0, sent)  # 0, or NaN where the value is not finite


def _terms(block: Floats, column: int, statistic: table.Statistic) -> Floats:
    """Return what each row adds to a sum of a function of the values: a lone value tells it by itself."""
    sent: Floats = block[:, :, column]
    lone = np.isnan(sent) & (block[:, :, COUNT] == 1)
    if not lone.any():
        return sent
    weights = np.where(np.isnan(block[:, :, WSUM]), 1.0, block[:, :, WSUM])[lone]
    terms: Floats = sent.copy()
    terms[lone] = list(map(statistic.term, block[:, :, SUM][lone].tolist(), weights.tolist()))
    return terms


def _chan(count: Floats, total: Floats, m2: Floats, counts: Floats, sums: Floats) -> Floats:
    if len(count) == 1:
        last: Floats = m2[0]
        return last
    # Row by row: what all before it deviate, what it deviates, and how far the two means lie apart.
    before, size = counts[:-1], count[1:]
    delta = total[1:] / size - sums[:-1] / before
    between = delta * delta * (before * size / counts[1:])
    between = np.where((before == 0) | (size == 0), 0.0, between)
    steps = np.concatenate((m2[:1], m2[1:] + between))
    # The deviations of each row from its own mean, and of its mean from that of all before it, one after the other.
    spread: Floats = np.add.accumulate(steps, axis=0)[-1]
    return spread


def _weights(block: Floats, count: Floats, total: Floats) -> tuple[Floats, Floats]:
    weight, weighted = block[:, :, WSUM], block[:, :, WXSUM]
    unsent = np.isnan(weight)
    if unsent.all():
        nothing = np.full(block.shape[1], np.nan)
        return nothing, nothing
    weight, weighted = np.where(unsent, count, weight), np.where(unsent, total, weighted)
    weights: Floats = np.add.accumulate(weight, axis=0)[-1]
    products: Floats = np.add.accumulate(weighted, axis=0)[-1]
    nowhere = unsent.all(axis=0)
    return np.where(nowhere, np.nan, weights), np.where(nowhere, np.nan, products)


def weighed(rows: Rows) -> Rows:
    """Return rows that count as much as they weigh: each record of one has the mean weight of its records."""
    weight, count = rows.stats[:, WSUM], rows.stats[:, COUNT]
    has_weight = ~np.isnan(weight) & (count > 0)
    if not has_weight.any():
        return rows
    stats = rows.stats.copy()
    stats[:, M2] = _m2(stats[None])[0]
    stats[has_weight, M2] *= (weight / np.maximum(count, 1))[has_weight]
    stats[has_weight, COUNT], stats[has_weight, SUM] = weight[has_weight], rows.stats[has_weight, WXSUM]
    return rows._replace(stats=stats)


def untold(stats: Floats, column: int) -> npt.NDArray[np.bool_]:
    """Return of which rows a statistic was not sent: NaN is also what it is of values that have none."""
    least = table.STATISTICS[column].least
    # A value that is not finite makes it NaN, and so does one below `least`, of which it has no function.
    return np.isnan(stats[:, column]) & np.isfinite(stats[:, SUM]) & ~(stats[:, MIN] < least)


def mean_of(folded: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return each row's mean (Σwx/Σw where weights were given) and whether there is one (Σw ≠ 0)."""
    weighted = ~np.isnan(folded[:, WSUM])
    over = np.where(weighted, folded[:, WSUM], folded[:, COUNT])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(weighted, folded[:, WXSUM], folded[:, SUM]) / over
    return mean, over != 0
