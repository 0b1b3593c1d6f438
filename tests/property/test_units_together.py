"""Units that are folded together give, bit by bit, what each of them gives alone."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import ACROSS
from otel_ml_service.aggregation.batch_fold import MAX_WINDOWS, fold_with_next
from otel_ml_service.aggregation.piece import Piece, Shape, Source, fold_order
from otel_ml_service.aggregation.reduce import Bins
from otel_ml_service.aggregation.reduced_windows import Folded, fold
from otel_ml_service.aggregation.reductions import Reductions
from otel_ml_service.aggregation.step_streams import Attempt, StepStream, StepWindow
from tests.strategies import Rank, anything

STEPS = 4
REDUCTIONS = (
    *(*ACROSS, "p50"),
    *("sum>max", "last>rank", "mean,last", "max>p90", "sum>histogram", "mean@dp", "min,max,argmin"),
)


class Writers:
    """Ranks with two metrics, of which each sends at every step as many records as at the others."""

    def __init__(self, counts: Sequence[tuple[int, int]], reduce: str) -> None:
        self._counts = counts
        self._reduce = reduce
        self._ranks = [Rank(number, topology=(("dp", number // 2, 4),)) for number in range(len(counts))]
        self._sources = [
            Source(number, number, rank.writer.instance, rank.writer.instance, {"dp": number // 2})
            for number, rank in enumerate(self._ranks)
        ]
        self._shapes: dict[tuple[object, ...], Shape] = {}

    def pieces(self, step: int, values: Iterator[float]) -> Iterator[Piece]:
        """Yield what the ranks send of a step."""
        for rank, source, counts in zip(self._ranks, self._sources, self._counts, strict=True):
            rank.clock += 1
            records = {name: [next(values) for _ in range(count)] for name, count in zip("ab", counts, strict=True)}
            for sent in rank.record(step, records, self._reduce):
                series = sent.partials.series
                shape = self._shapes.setdefault(series, Shape(len(self._shapes), series))
                yield Piece(source, sent.seq, sent.reduction, shape, sent.partials, sent.partials.newest_ns)


def bits(folded: Folded) -> list[object]:
    """Return all that was found, numbers as their bytes: NaN is NaN, and 0 is not -0."""

    def of(bins: Bins) -> tuple[object, ...]:
        return (*bins[:3], struct.pack(f"{len(bins.edges)}d", *bins.edges), bins.counts)

    return [
        (
            str(reduction),
            [(*value._replace(value=0.0), struct.pack("d", value.value)) for value in result.values],
            [of(bins) for bins in result.histograms],
            result.coarse,
        )
        for reduction, result in folded.results
    ]


@pytest.mark.parametrize("reduce", REDUCTIONS)
@given(
    counts=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=4),
    values=st.lists(anything, min_size=STEPS * 24, max_size=STEPS * 24),
)
@settings(max_examples=25, deadline=None)
def test_together_is_as_each_alone(reduce: str, counts: list[tuple[int, int]], values: list[float]) -> None:
    writers, source = Writers(counts, reduce), iter(values)
    windows = [sorted(writers.pieces(step, source), key=fold_order) for step in range(STEPS)]

    together = fold(windows, Reductions())

    assert [bits(folded) for folded in together] == [bits(*fold([pieces], Reductions())) for pieces in windows]


@given(
    kinds=st.lists(st.sampled_from((((1, 1), (2, 1)), ((1, 1),), ())), min_size=1, max_size=8),
    late=st.integers(0, 7),
    values=st.lists(anything, min_size=60, max_size=60),
)
@settings(max_examples=100, deadline=None)
def test_what_was_folded_ahead_is_what_the_window_holds_when_it_closes(
    kinds: list[Sequence[tuple[int, int]]], late: int, values: list[float]
) -> None:
    attempt, source = Attempt(0, StepStream("trainer", "step", Reductions(), {}), 0), iter(values)
    writers = {kind: Writers(kind, str(Reduction.parse("mean,max"))) for kind in kinds}
    for step, kind in enumerate(kinds):
        window = StepWindow(step, step, 0.0)
        for piece in writers[kind].pieces(step, source):
            window.add(piece)
        attempt.insert(window)
    more = Writers([(1, 1)], "sum")

    for step in range(len(kinds)):
        window = attempt.remove(attempt.order[0])
        if step == late:  # comes after the windows before it were folded, and this one perhaps with them
            for piece in more.pieces(step, source):
                window.add(piece)
        alone = fold([sorted(window.pieces, key=fold_order)], Reductions())
        assert bits(fold_with_next(attempt, window)) == bits(*alone)


def test_a_piece_without_a_single_point_is_folded_like_any_other() -> None:
    writers = Writers([(1, 1)], "sum")
    (piece,) = writers.pieces(0, iter((1.0, 2.0)))
    empty = piece.some([])

    (folded,) = fold([[empty]], Reductions())

    assert [result.values for _, result in folded.results] == [[]]


def test_no_more_windows_than_a_request_brings_are_looked_at_ahead() -> None:
    """Else the open steps of a job that waits for a rank would all be looked at whenever one of them closes."""
    writers, attempt = Writers([(1, 1)], "sum"), Attempt(0, StepStream("trainer", "step", Reductions(), {}), 0)
    for step in range(3 * MAX_WINDOWS):
        window = StepWindow(step, step, 0.0)
        for piece in writers.pieces(step, iter((1.0, 2.0))):
            window.add(piece)
        attempt.insert(window)

    fold_with_next(attempt, attempt.remove(attempt.order[0]))

    assert sum(window.folded is not None for window in attempt.open.values()) == MAX_WINDOWS
