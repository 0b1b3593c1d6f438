"""What the compiled fold gathers is what the Python beside it gathers, from any records in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml._internal.device_tensor import Deferred
from otel_ml._internal.native import native
from otel_ml._internal.record.fold import Folder, fold_in_python
from otel_ml._internal.series.definition import Definition, Series
from otel_ml._internal.series.pending import ALONE, StepPartials
from otel_ml._internal.series.row import Row
from otel_ml._internal.steps.axes import STEPS
from otel_ml._internal.steps.axis import Step
from otel_ml.wire.reduction import Reduction

REDUCTIONS = (
    Reduction(("mean",)),
    Reduction(("sum",)),
    Reduction(("min", "max")),
    Reduction(("std",)),
    Reduction(("geomean", "max")),
    Reduction(("p50",)),
    Reduction(("last",)),
    Reduction(("first", "mean")),
    Reduction(("sum",), within="last"),
    Reduction(("max",), within="sum"),
    Reduction(unsaid=("across",)),
)
BARE = REDUCTIONS.index(Reduction(unsaid=("across",)))
REDUCTIONS += (REDUCTIONS[BARE],) * 2
INTERNAL = len(REDUCTIONS)
SERIES = st.integers(0, INTERNAL)
ROWS: Sequence[Sequence[int]] = (
    *((0, 1, 2), (0, 5, 7), (8, 1, 0), (3, 4), (9, 0, 9), (BARE,)),
    *((0, 1, 2, 5, BARE), (BARE + 1, BARE, 3, 1, 0), (8, 1, 3, 5, 9, 2), (0, 1, 2, 3, BARE + 2), (BARE, 0, 1, 2, 4, 7)),
)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308])
WEIGHTED = st.tuples(FLOATS, st.floats(0, 1e6))
VALUES = FLOATS | WEIGHTED | st.lists(FLOATS, max_size=4) | st.lists(WEIGHTED, max_size=3) | st.just("later")
TIMES = st.integers(0, 20) | st.integers(0, 2**62)
ROW_RECORDS = st.tuples(st.just("row"), st.integers(0, len(ROWS) - 1), st.lists(FLOATS, min_size=6, max_size=6))
RECORDS = st.tuples(st.integers(0, 2), st.tuples(st.just("one"), SERIES, VALUES) | ROW_RECORDS, TIMES)
FOLDS = st.lists(st.lists(RECORDS, max_size=40), min_size=1, max_size=3)


class Later(Deferred):
    """A value of a device that is never there."""

    def ready(self) -> bool:
        return False

    def read(self) -> list[Any]:
        raise AssertionError


class World:
    """Series, rows and steps of its own, folded by one of the two."""

    def __init__(self, fold: Callable[[Folder, list[Any]], int]) -> None:
        self.fold_records = fold
        self.folder = Folder()
        self.series = [Series(Definition(f"m{i}", one, "", "")) for i, one in enumerate(REDUCTIONS)]
        self.series.append(Series(Definition("own", Reduction(("sum",)), "", ""), internal=True))
        self.rows = [Row([self.series[place] for place in row]) for row in ROWS]
        self.steps = [Step(None, index, STEPS.generation) for index in range(3)]

    def fold(self, records: Sequence[Any]) -> None:
        items: list[Any] = []
        for step, (kind, place, value), time_ns in records:
            if kind == "row":
                row = self.rows[place]
                items += (row, self.steps[step], None, time_ns, *value[: len(row.series)])
            else:
                found = Later() if value == "later" else list(value) if isinstance(value, list) else value
                items += (self.series[place], self.steps[step], found, time_ns)
        self.more = self.fold_records(self.folder, items)

    def state(self) -> object:
        """Everything that was gathered, in an order and with NaN comparable."""
        folder = self.folder
        steps = [(step.index, step.waiting, self.pending(step.pending)) for step in self.steps]
        deferred = [(self.series.index(series), step.index, time) for series, step, _, time in folder.deferred]
        kinds = [(one.special, one.weighted, getattr(one, "moments", None)) for one in self.series]
        return repr((steps, deferred, kinds, folder.values, folder.recorded, list(folder.steps), self.more))

    def pending(self, pending: StepPartials | None) -> object:
        if pending is None:
            return None
        tables = (pending.moments, pending.order, pending.weights, pending.m2, pending.groups, pending.rows)
        tables_by_place = [[(self.place(one), value) for one, value in table.items()] for table in tables]
        buckets = [
            (self.place(one), found.scale, found.zeros, found.positive, found.negative)
            for one, found in pending.buckets.items()
        ]
        more = [(self.place(one), values) for one, values in pending.more.items()]
        return pending.first_ns, pending.last_ns, tables_by_place, buckets, more, self.pending(pending.between)

    def place(self, series: Series) -> int:
        """Return which series it is; what is folded of a bare one counts as that."""
        return next(place for place, one in enumerate(self.series) if series in {one, one.crowd})


@given(FOLDS)
@example([[(0, ("one", 10, [0.0, 0.0]), 0)], [(0, ("one", 10, (0.0, 0.0)), 0)]])  # fewer partials than before
def test_any_records_give_what_python_gives(folds: list[list[Any]]) -> None:
    assert native is not None, "the compiled part is missing: make setup"
    compiled, python = World(native.fold_records), World(fold_in_python)
    for records in folds:
        compiled.fold(records)
        python.fold(records)
        assert compiled.state() == python.state()


NUMBERED = st.integers(0, 1), st.sampled_from([*range(len(ROWS)), "alone"])


@pytest.mark.parametrize("fold", ["compiled", "python"])
@given(st.lists(st.tuples(*NUMBERED), max_size=ALONE))
@example([(0, 6), (0, 7), (0, 6)])
@example([(0, 6), (1, 7), (0, 7), (0, 6)])
@example([(0, "alone"), (0, 6), (0, "alone")])
def test_records_of_a_metric_whose_reduction_nobody_has_said_keep_their_order(fold: str, calls: list[Any]) -> None:
    """Another rank may say that it is the first of them, or the last."""
    assert native is not None
    world = World(native.fold_records if fold == "compiled" else fold_in_python)
    expected: dict[tuple[int, int], list[float]] = {}
    records = []
    for number, (step, call) in enumerate(calls):
        value = float(number)
        row = (BARE,) if call == "alone" else ROWS[call]
        records.append((step, ("one", BARE, value) if call == "alone" else ("row", call, [value] * 6), number))
        for place in set(row) & {BARE, BARE + 1, BARE + 2}:
            expected.setdefault((step, place), []).append(value)
    world.fold([(2, ("row", row, [0.0] * 6), 0) for row in range(len(ROWS))])  # series are settled from here on
    world.fold(records)

    found = {
        (step.index, world.place(series)): [moments[1], *step.pending.more.get(series, ())]
        for step in world.steps[:2]
        if step.pending is not None
        for series, moments in step.pending.moments.items()
        if series.bare
    }
    assert found == expected


def test_a_series_that_a_fork_left_half_settled_is_settled_anew() -> None:
    assert native is not None
    compiled, python = World(native.fold_records), World(fold_in_python)
    for world in (compiled, python):
        for series in world.series[:INTERNAL]:
            series.moments, series.ordered = True, False
        world.fold([(0, ("one", place, 0.5), 1) for place in range(INTERNAL)])

    assert compiled.state() == python.state()


@pytest.mark.parametrize("broken", [[1, 2, 3.0, 4], [None, None, None, None]])
def test_what_is_no_record_is_refused_and_not_read(broken: list[Any]) -> None:
    assert native is not None
    with pytest.raises(TypeError, match="expected a Series and a Step"):
        native.fold_records(Folder(), broken)


def test_a_row_that_is_cut_off_is_refused() -> None:
    assert native is not None
    world = World(native.fold_records)
    with pytest.raises(ValueError, match="expected 3 values after a row"):
        native.fold_records(world.folder, [world.rows[0], world.steps[0], None, 1, 0.5])
