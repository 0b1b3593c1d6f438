"""The values of one metric of all ranks become one value, or several (docs/protocol.md §2.8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import LOGS, REDUCTIONS, STATISTICS, Row, is_quantile, quantile_of
from otel_ml_service.aggregation.converted_points import bucket_of
from otel_ml_service.aggregation.fold import (
    COUNT,
    M2,
    MAX,
    MIN,
    SUM,
    WSUM,
    Rows,
    columns_of,
    fold_rows,
    layers,
    mean_of,
    untold,
    weighed,
)
from otel_ml_service.aggregation.lone_values import lone_values
from otel_ml_service.aggregation.observation import Attributes
from otel_ml_service.aggregation.piece import Piece, Shape
from otel_ml_service.aggregation.point_table import Table, tabulate
from otel_ml_service.aggregation.points import Buckets, ExplicitBuckets
from otel_ml_service.aggregation.quantiles import FULL_SCALE, Distribution, Part, merged, nearest_rank

__all__ = ["Bins", "Reduced", "Value", "reduce_windows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Found = Iterator[tuple[int, float]]
"""(column, value) of the columns that have a value."""


class Value(NamedTuple):
    """One value to publish: `place` is which of the reduction's names it is; `rank` where it is one rank's."""

    name: str
    attributes: Attributes
    place: int
    value: float
    rank: int | None = None


class Bins(NamedTuple):
    """One histogram to publish."""

    name: str
    attributes: Attributes
    place: int
    edges: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(slots=True)
class Reduced:
    """All values of one reduction at one step.

    Attributes:
        values: those to publish.
        histograms: those to publish.
        left_out: how many records are in no bin of a histogram, where there are some: they are NaN or infinite.
        coarse: quantiles from buckets wider than 0.6 %.
    """

    values: list[Value] = field(default_factory=list)
    histograms: list[Bins] = field(default_factory=list)
    left_out: list[Value] = field(default_factory=list)
    coarse: int = 0

    def leave_out(self, value: Value, records: int) -> None:
        """Count records that a histogram cannot show."""
        if records > 0:
            self.left_out.append(value._replace(value=float(records)))


def reduce_windows(reduction: Reduction, windows: Sequence[Sequence[Piece]]) -> list[Reduced]:
    """Reduce the pieces of each window: all of `reduction`, and laid out as `tabulate` asks for."""
    lone = lone_values(reduction, windows)
    if lone is not None:
        return [_of_lone(windows[0][0].shape, values) for values in zip(*lone, strict=True)]
    table = tabulate(reduction, windows)
    if reduction == _DEVIATION:
        table = table._replace(rows=weighed(table.rows))
    if reduction.within is not None:
        table = _combined_within(table, REDUCTIONS[reduction.within])
    # Once, with the statistics that any of the reductions needs.
    folded = fold_rows(table.rows, frozenset[int]().union(*map(columns_of, reduction.rows)))
    results = [Reduced() for _ in windows]
    distributions = _Distributions(table)
    for place, (across, row) in enumerate(zip(reduction.across, reduction.rows, strict=True)):
        if row.point == "buckets":
            _spread(results, distributions, across, place)
        elif row.publishes == "ranks":
            _each_rank(results, table, place)
        else:
            found = _plain(across, folded, table) if row.edge is None else _ordered(table, row.edge)
            wanted = table.moments if row.edge is None else table.order
            for column, value in found:
                window, number = divmod(column, table.width)
                if wanted[number]:
                    results[window].values.append(Value(*table.series[number], place, value))
    return results


def _of_lone(shape: Shape, values: Sequence[Floats]) -> Reduced:
    """Return the values of a window: of each of the reduction's names [series]."""
    return Reduced(
        [
            Value(name, attributes, place, value)
            for place, column in enumerate(values)
            for (name, attributes, _), value in zip(shape.joined, column.tolist(), strict=True)
        ]
    )


def _plain(across: str, folded: Floats, table: Table) -> Found:
    if across in EXTREMES:
        return _extreme_rank(across, table.rows)
    values, present = _picked(across, folded, table.rows)
    present &= folded[:, COUNT] > 0
    chosen = np.flatnonzero(present)
    return zip(chosen.tolist(), values[chosen].tolist(), strict=True)


Picked = tuple[Floats, npt.NDArray[np.bool_]]


def _picked(across: str, folded: Floats, rows: Rows) -> Picked:
    """Return the value of each column, also of values whose sum, or sum of squares, is beyond the largest double."""
    values, present = ACROSS[across](folded)
    if across not in _SCALABLE or np.isfinite(values).all():
        return values, present
    again, _ = ACROSS[across](fold_rows(_smaller(rows), columns_of(REDUCTIONS[across])))
    with np.errstate(over="ignore"):
        return np.where(np.isfinite(values), values, again / _FACTOR), present


def _sent(folded: Floats, column: int) -> Picked:
    """A column of the stats; what no writer sent is absent."""
    return folded[:, column], ~untold(folded, column)


def _std(folded: Floats) -> Picked:
    spread, present = _sent(folded, M2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(spread / folded[:, COUNT]), present


def _geomean(folded: Floats) -> Picked:
    """Of positive values: a 0 makes it 0, a negative value NaN. It lies between the extremes, whatever was rounded."""
    logs, present = _sent(folded, STATISTICS.index(LOGS))
    low, high, weights = folded[:, MIN], folded[:, MAX], folded[:, WSUM]
    over = np.where(np.isnan(weights), folded[:, COUNT], weights)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.exp(logs / over)
    # `fmin` and `fmax` pass over NaN: extremes that are not known bound nothing.
    between = np.fmax(np.fmin(mean, high), low)
    return np.where(np.isnan(mean) | (low < 0.0), np.nan, between), present & (over != 0.0)


def _always(column: int) -> Callable[[Floats], Picked]:
    return lambda folded: (folded[:, column], np.ones(len(folded), dtype=bool))


def _smaller(rows: Rows) -> Rows:
    """Return rows of values that are so much smaller that their squares do not overflow."""
    with np.errstate(invalid="ignore"):
        stats = rows.stats * _SMALLER * _SMALLER_SQUARE
        low, high = stats[:, MIN], stats[:, MAX]
        # A writer's own sums may be beyond the largest double; of two values the extremes say all.
        are_two = (stats[:, COUNT] == 2) & np.isfinite(low) & np.isfinite(high)
        overflowed = are_two & ~(np.isfinite(stats[:, SUM]) & np.isfinite(stats[:, M2]))
        stats[overflowed, SUM] = (low + high)[overflowed]
        stats[overflowed, M2] = np.square(high - low)[overflowed] / 2
    return rows._replace(stats=stats)


ACROSS: dict[str, Callable[[Floats], Picked]] = {
    "mean": mean_of,
    "sum": _always(SUM),
    "min": lambda folded: _sent(folded, MIN),
    "max": lambda folded: _sent(folded, MAX),
    "count": _always(COUNT),
    "std": _std,
    "geomean": _geomean,
}
"""What each reduction makes of the statistics of all writers: the value of each column, and whether it has one."""
_DEVIATION = Reduction(("std",))
"""The one reduction besides a mean that weights have a part in: beside others it is that of all records (ADR 0037)."""
_SCALABLE = frozenset({"mean", "std"})
# Squares of the largest doubles become 2⁸⁴⁸ by it: however many are added up, the sum is a double.
_FACTOR = 2.0**-600
_DEGREES = np.array([statistic.degree for statistic in STATISTICS])
_SMALLER, _SMALLER_SQUARE = np.where(_DEGREES > 0, _FACTOR, 1.0), np.where(_DEGREES > 1, _FACTOR, 1.0)
"""What the statistics become where all values are so much smaller; the factor's square is not a double."""
EXTREMES = {"argmax": (MAX, np.argmax), "argmin": (MIN, np.argmin)}
"""Those that are a rank: which statistic, and how the rank is picked."""


def _extreme_rank(across: str, rows: Rows) -> Found:
    """The rank that holds the extreme, the lowest of equals; NaN where a rank's value is NaN."""
    stat, pick = EXTREMES[across]
    for columns, index in layers(rows):
        block = rows.stats[index, stat]
        ranks = np.take_along_axis(rows.rank[index], pick(block, axis=0)[None, :], axis=0)[0]
        unknown = np.isnan(block).any(axis=0)
        # NaN among finite values: some writer did not send its extremes, and nobody knows who has it.
        unsent = unknown & np.isfinite(rows.stats[index, SUM]).all(axis=0)
        values = np.where(unknown, np.nan, ranks.astype(np.float64))
        kept = ~unsent
        yield from zip(columns[kept].tolist(), values[kept].tolist(), strict=True)


def _ordered(table: Table, edge: str) -> Found:
    """last, first: by order within a writer, by time across writers, ties to the lower rank."""
    rows = table.one_per_writer(edge)
    stat_time = 1 if edge == "last" else 0
    for columns, index in layers(rows):
        moments = rows.times[index, stat_time]
        # Both take the first of equal times, and rows are in the order of ranks.
        best = (np.argmax if edge == "last" else np.argmin)(moments, axis=0)
        chosen = np.take_along_axis(index, best[None, :], axis=0)[0]
        # Of several records in one point nobody knows which came last: the series has no value then.
        lone = rows.stats[chosen, COUNT] == 1
        yield from zip(columns[lone].tolist(), rows.stats[chosen[lone], SUM].tolist(), strict=True)


def _each_rank(results: Sequence[Reduced], table: Table, place: int) -> None:
    rows, column, rank = table.by_rank()
    means, present = _picked("mean", folded := fold_rows(rows, columns_of(REDUCTIONS["mean"])), rows)
    present &= folded[:, COUNT] > 0
    for row in np.flatnonzero(present).tolist():
        window, number = divmod(int(column[row]), table.width)
        if table.moments[number]:
            value = Value(*table.series[number], place, float(means[row]), int(rank[row]))
            results[window].values.append(value)


def _combined_within(table: Table, within: Row) -> Table:
    """Return the table of one row per writer: its records of the step combined."""
    if within.edge is not None:
        rows = table.one_per_writer(within.edge)
        values, present = rows.stats[:, SUM], rows.stats[:, COUNT] == 1
        return table.of_values(rows, values, present)
    per_writer = table.by_writer()
    folded = fold_rows(per_writer.rows, columns_of(within))
    values, present = _picked(within.name, folded, per_writer.rows)
    present = present & (folded[:, COUNT] > 0)
    return table.of_values(per_writer.outer, values, present)


class _Distributions:
    """The merged buckets of each column of a table, merged once for all that is asked of them."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._known: dict[int, Distribution | None] = {}

    def of(self, column: int, rows: Ints) -> Distribution | None:
        """Return that of a column; None where it has no buckets."""
        if column not in self._known:
            self._known[column] = _distribution(self.table, rows)
        return self._known[column]


def _spread(results: Sequence[Reduced], distributions: _Distributions, across: str, place: int) -> None:
    """Quantiles and the histogram itself: from exact values after `within`, else from buckets."""
    table = distributions.table
    for column, rows in enumerate(table.rows_by_column()):
        window, number = divmod(column, table.width)
        if not table.moments[number]:
            continue
        value, result = Value(*table.series[number], place, 0.0), results[window]
        if table.exact or _are_single_values(table, rows):
            if len(rows):
                _spread_exact(result, value, table.rows.stats[rows, SUM], across)
        elif (distribution := distributions.of(column, rows)) is not None:
            _spread_buckets(result, value, distribution, across)


def _are_single_values(table: Table, rows: Ints) -> bool:
    """Whether nothing has buckets, because there is nothing to share out: gauges of other SDKs."""
    return not any(table.buckets) and bool((table.rows.stats[rows, COUNT] == 1).all())


def _distribution(table: Table, rows: Ints) -> Distribution | None:
    parts = [
        Part(buckets, *stats)
        for row, stats in zip(rows.tolist(), table.rows.stats[rows][:, [COUNT, SUM, MIN, MAX]].tolist(), strict=True)
        if (buckets := _buckets_of(table, row, *stats[:2])) is not None
    ]
    return merged(parts) if parts else None


def _buckets_of(table: Table, row: int, count: float, total: float) -> Buckets | ExplicitBuckets | None:
    """Return those of a row: of a single value, a gauge of another SDK beside what has buckets, the one it lies in."""
    known = table.buckets[row] if table.buckets else None
    return bucket_of(total) if known is None and table.buckets and count == 1 else known


def _spread_buckets(result: Reduced, value: Value, distribution: Distribution, across: str) -> None:
    # A lower scale has wider buckets: the quantile may be further off than 0.6 %.
    result.coarse += distribution.scale < FULL_SCALE
    if is_quantile(across):
        result.values.append(value._replace(value=distribution.quantile(quantile_of(across))))
        return
    result.leave_out(value, distribution.nonfinite)
    if (bins := distribution.bins())[0]:
        result.histograms.append(Bins(value.name, value.attributes, value.place, *bins))


def _spread_exact(result: Reduced, value: Value, values: Floats, across: str) -> None:
    if not is_quantile(across):
        finite = values[np.isfinite(values)]
        result.leave_out(value, len(values) - len(finite))
        if len(finite):
            counts, edges = np.histogram(finite, bins=min(64, max(1, len(finite))))
            result.histograms.append(
                Bins(value.name, value.attributes, value.place, tuple(edges.tolist()), tuple(map(float, counts)))
            )
        return
    number = math.nan
    if not np.isnan(values).any():
        number = float(np.sort(values)[nearest_rank(quantile_of(across), len(values)) - 1])
    result.values.append(value._replace(value=number))
