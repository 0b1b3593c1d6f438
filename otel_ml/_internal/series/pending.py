"""What one step has gathered: records become, per series, the partial that travels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from otel_ml._internal.native import native
from otel_ml._internal.series.buckets import ExponentialBuckets
from otel_ml._internal.series.definition import OWN_COUNTS, Series
from otel_ml._internal.series.row import Row

__all__ = ["Group", "Moments", "Order", "StepPartials"]

Group = float | list[float]
"""Records of a series: the only one itself, for most have one a step. A list each would be the interpreter's garbage
collector's to look at, which stops all threads: `tests/unit/otel_ml/record/test_garbage.py`."""

Rows = tuple[float, ...] | list[tuple[float, ...]]
"""Values of a row, in the order of its series; or several times those."""

Moments = tuple[int, float, float, float]
"""count, sum, min, max"""


ALONE = 8
"""Records of a bare series in a step that travel alone. Of more, those between the first and the last are folded."""


class Order(NamedTuple):
    """The first and the last record of a series in a step, by time."""

    first_ns: int
    first: float
    last_ns: int
    last: float


class StepPartials:
    """What one step has gathered since the last collection.

    Attributes:
        first_ns, last_ns: times of its first and its last record.
        groups: records not yet reduced, of the fold in progress.
        rows: the same of whole rows.
        moments: per series; all but those of which only the order matters.
        buckets: where quantiles or a histogram are asked for.
        order: where the first or the last record is asked for.
        m2: sum of squared deviations from the mean, where `std` is asked for.
        weights: Σw and Σwx, where a record had a weight; one without counts as weight 1.
        sums: of functions of the values, where a reduction is made of such; None until there are.
        more: of bare series, the records after the first, in order; `moments` has the first one alone.
        between: what is folded of those that have too many records for that: all but the first and the last.
    """

    __slots__ = (
        "between", "buckets", "first_ns", "groups", "last_ns", "m2", "moments", "more", "order", "rows", "sums",
        "weights",
    )  # fmt: skip

    first_ns: int
    last_ns: int

    def __init__(self, first_ns: int) -> None:
        self.first_ns = self.last_ns = first_ns
        self.groups: dict[Series, Group] = {}
        self.rows: dict[Row, Rows] = {}
        self.moments: dict[Series, Moments] = {}
        self.m2: dict[Series, float] = {}
        self.buckets: dict[Series, ExponentialBuckets] = {}
        self.order: dict[Series, Order] = {}
        self.weights: dict[Series, tuple[float, float]] = {}
        self.more: dict[Series, list[float]] = {}
        self.between: StepPartials | None = None
        self.sums: dict[Series, tuple[float, ...]] | None = None

    def add_special(self, series: Series, value: float, weight: float | None, time_ns: int) -> None:
        """Add one record whose order or weight matters, or the first one of its series."""
        series.settle()
        if weight is not None and not series.weighted:
            series.use_weights()
        if series.weighted:
            # Before the value is added below: the first weight counts what is there already as weight 1.
            self._add_weight(series, value, 1.0 if weight is None else weight)
        if series.sums:
            self._add_sums(series, value, 1.0 if weight is None else weight)
        if series.ordered:
            self._add_order(series, value, time_ns)
        if series.moments or series.buckets:
            self.add(series, value)

    def add(self, series: Series, value: float) -> None:
        """Add one record of which only the value matters."""
        group = self.groups.get(series)
        if group is None:
            # It is in a row of this fold already. The order of a bare series' records is kept, and would be lost
            # between a row and a record beside it.
            if series.bare and series.row in self.rows:
                self.take_rows_apart()
                self.add(series, value)
                return
            self.groups[series] = value
        elif isinstance(group, list):
            group.append(value)
        else:
            self.groups[series] = [group, value]

    def add_row(self, row: Row, values: tuple[float, ...]) -> None:
        """Add one record of each series of a row of which only the values matter."""
        before = self.rows.get(row)
        if before is None:
            if self._is_shared(row):
                self.take_rows_apart()
                self._add_each(row, values)
            else:
                self.rows[row] = values
        elif isinstance(before, list):
            before.append(values)
        else:
            self.rows[row] = [before, values]

    def _is_shared(self, row: Row) -> bool:
        """Whether records of a bare series of the row are here outside of it: of them the order is kept.

        A service may learn later that it is asked for the first of them, or the last.
        """
        bare = [series for series in row.series if series.bare]
        is_shared = any(series in self.groups or series.row in self.rows for series in bare)
        self._know(row)
        return is_shared

    def know_rows(self) -> None:
        """Have bare series know which of the rows here they are in, after they were in those of another step."""
        for row in self.rows:
            self._know(row)

    def _know(self, row: Row) -> None:
        for series in row.series:
            if series.bare:
                series.row = row

    def _add_weight(self, series: Series, value: float, weight: float) -> None:
        sums = self.weights.get(series)
        if sums is None:
            # Records of this step that came before the first weight count as weight 1.
            if any(series in row.series for row in self.rows):
                self.take_rows_apart()
            self._take_together(series)
            count, total, _, _ = self.moments.get(series, (0, 0.0, 0.0, 0.0))
            group = _listed(self.groups.get(series, []))
            sums = (float(count + len(group)), total + sum(group))
        self.weights[series] = (sums[0] + weight, sums[1] + weight * value)

    def take_rows_apart(self) -> None:
        """Make records of their own of all rows: a bare series is in no more than one, and not among the groups."""
        taken, self.rows = self.rows, {}
        for row, rows in taken.items():
            for values in rows if isinstance(rows, list) else [rows]:
                self._add_each(row, values)

    def _add_each(self, row: Row, values: tuple[float, ...]) -> None:
        for series, value in zip(row.series, values, strict=True):
            self.add(series, value)

    def _add_sums(self, series: Series, value: float, weight: float) -> None:
        if self.sums is None:
            self.sums = {}
        before = self.sums.get(series) or (0.0,) * len(series.sums)
        terms = (one.term(value, weight) for one in series.sums)
        self.sums[series] = tuple(total + term for total, term in zip(before, terms, strict=True))

    def _add_order(self, series: Series, value: float, time_ns: int) -> None:
        seen = self.order.get(series)
        # Threads may append out of order, and deferred values come late: the time of the call decides which record was
        # first, not the order of arrival.
        if seen is None:
            self.order[series] = Order(time_ns, value, time_ns, value)
        elif time_ns >= seen.last_ns:
            self.order[series] = seen._replace(last_ns=time_ns, last=value)
        elif time_ns < seen.first_ns:
            self.order[series] = seen._replace(first_ns=time_ns, first=value)

    def reduce(self) -> None:
        """Merge the groups into the partials and let the records go."""
        self._merge(self.groups.items())
        for row, rows in self.rows.items():
            self._merge(zip(row.series, zip(*rows, strict=True) if isinstance(rows, list) else rows, strict=True))
        self.groups, self.rows = {}, {}

    def part(self, chosen: Mapping[Series, Series]) -> StepPartials:
        """Return what was reduced of some of the series, under others."""
        part = StepPartials(self.first_ns)
        part.last_ns = self.last_ns
        for name in ("moments", "m2", "buckets", "order", "weights", "more"):
            held = getattr(self, name)
            setattr(part, name, {other: held[series] for series, other in chosen.items() if series in held})
        if self.sums is not None:
            part.sums = {other: self.sums[series] for series, other in chosen.items() if series in self.sums}
        if self.between is not None:
            # In `between`, records are filed under the crowd of their series.
            crowds = {series.crowd: other.gather() for series, other in chosen.items() if series.crowd is not None}
            part.between = self.between.part(crowds) if crowds else None
        return part

    def _merge(self, groups: Iterable[tuple[Series, float | Sequence[float]]]) -> None:
        moments = self.moments
        for series, group in groups:
            if series.bare and (series in moments or not isinstance(group, float)):
                self._add_bare(series, _listed(group))
                continue
            # A lone value stays a bare float up to here: a list for each would be tracked by the garbage collector,
            # whose passes stop training.
            new = (1, group, group, group) if isinstance(group, float) else _moments(group)
            if series.m2:
                self._merge_m2(series, _listed(group), new)
            if series.buckets:
                self.buckets.setdefault(series, ExponentialBuckets()).add(_listed(group))
            old = moments.get(series)
            moments[series] = new if old is None else _merged(old, new)

    def _add_bare(self, series: Series, values: Sequence[float]) -> None:
        """Keep records of which nobody has said what they become: one by one, or all that can be made of them."""
        if series not in self.moments:
            first, *values = values
            self.moments[series] = (1, first, first, first)
        later = self.more.setdefault(series, [])
        later += values
        # Nobody has said how this metric is reduced, and a service may learn it later (from another rank): so records
        # travel one by one, as long as they are few. Of many, all between the first and the last are folded into sums
        # and buckets.
        if len(later) >= ALONE or self._is_crowded(series):
            if self.between is None:
                self.between = StepPartials(self.first_ns)
            merge_group(self.between, series.gather(), later[:-1])
            # The last one stays by itself: a service may learn that it is asked for.
            del later[:-1]

    def _is_crowded(self, series: Series) -> bool:
        return self.between is not None and series.crowd in self.between.moments

    def _take_together(self, series: Series) -> None:
        """Fold all records of a bare series that has weights from now on."""
        later = self.more.pop(series, None)
        if later is None:
            return
        if self.between is not None and series.crowd is not None:
            folded = self.between.moments.pop(series.crowd, None)
            self.between.buckets.pop(series.crowd, None)
            if folded is not None:
                self.moments[series] = _merged(self.moments[series], folded)
        self.moments[series] = _merged(self.moments[series], _moments(later))

    def parts(self) -> Iterator[StepPartials]:
        """Yield what is encoded one after the other: of a series no more than one point each, in order.

        Bare records come first: once a process is asked for a reduction, no record of the metric is bare anymore.
        """
        if self.more:
            # The sum of the one record is its value.
            yield self._alone({series: self.moments.pop(series)[1] for series in self.more})
        if self.between is not None:
            self.between.first_ns, self.between.last_ns = self.first_ns, self.last_ns
            yield self.between
        for place in range(max(map(len, self.more.values()), default=0)):
            yield self._alone({series: later[place] for series, later in self.more.items() if len(later) > place})
        if self.moments or self.order:
            yield self

    def _alone(self, values: Mapping[Series, float]) -> StepPartials:
        part = StepPartials(self.first_ns)
        part.last_ns = self.last_ns
        part.moments = {series: (1, value, value, value) for series, value in values.items()}
        return part

    def add_values(self, series: Series, values: list[float]) -> None:
        """Fold several values of one series that is not bare."""
        self._merge([(series, values)])

    def _merge_m2(self, series: Series, values: Sequence[float], new: Moments) -> None:
        mean = new[1] / new[0]
        # A product and no power: `1e200 ** 2` raises OverflowError, where the product is infinite.
        m2 = sum([(value - mean) * (value - mean) for value in values])
        old = self.moments.get(series)
        if old is not None:
            # Chan, Golub, LeVeque 1979
            delta = mean - old[1] / old[0]
            m2 += self.m2[series] + delta * delta * old[0] * new[0] / (old[0] + new[0])
        self.m2[series] = m2

    @property
    def size(self) -> int:
        """How many partials it holds, about."""
        return len(self.moments) + len(self.order) + len(self.more)

    @property
    def values(self) -> int:
        """How many of the user's values its points will stand for: what each counts; one for a Gauge without a count.

        The receiver counts the same of what arrives (ADR 0031).
        """
        total = sum([moments[0] for moments in self.moments.values()])
        for series in OWN_COUNTS:
            total -= self.moments.get(series, (0,))[0]
        total += self._later
        return total + (self._gauges_alone() if self.order else 0)

    @property
    def _later(self) -> int:
        """How many records of bare series are not the first ones."""
        folded = 0 if self.between is None else self.between.values
        return folded + sum(map(len, self.more.values()))

    def _gauges_alone(self) -> int:
        """Return how many Gauges stand for a value that no count says: of series that only the order matters of."""
        alone = [(series, order) for series, order in self.order.items() if series not in self.moments]
        # The halves are (time, value) of the first and of the last record: equal where there is only one.
        return sum(2 if order[:2] != order[2:] and _is_twice(series) else 1 for series, order in alone)

    @property
    def records(self) -> int:
        """How many records it holds, at least: of those reduced by order alone, one a series."""
        alone = sum(1 for series in self.order if series not in self.moments)
        return alone + self._later + sum(moments[0] for moments in self.moments.values())


def _is_twice(series: Series) -> bool:
    """Whether both the first and the last record travel."""
    return len(series.definition.reduction.edges) == 2


def _listed(group: float | Sequence[float]) -> Sequence[float]:
    return [group] if isinstance(group, float) else group


def _moments(values: Sequence[float]) -> Moments:
    total = sum(values)
    # Infinities of both signs also have no sum, but a minimum and a maximum.
    if total != total and any(value != value for value in values):
        # min() and max() skip a NaN or not depending on where it stands.
        return len(values), total, total, total
    return len(values), float(total), min(values), max(values)


def _merged(old: Moments, new: Moments) -> Moments:
    nan = old[2] + new[2]
    # One addition tells most cases apart; it is NaN also of infinities of both signs.
    if nan != nan and (old[2] != old[2] or new[2] != new[2]):
        return old[0] + new[0], nan, nan, nan
    return old[0] + new[0], old[1] + new[1], min(old[2], new[2]), max(old[3], new[3])


merge_group: Callable[[StepPartials, Series, list[float]], None] = (
    StepPartials.add_values if native is None else native.merge_group
)
