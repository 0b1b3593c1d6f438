"""What is reduced without a table, from the bytes that were sent, is what the table of the same values gives."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.converted_points import bucket_of
from otel_ml_service.aggregation.lone_values import lone_values
from otel_ml_service.aggregation.observation import Fragment
from otel_ml_service.aggregation.piece import Piece, Shape, Source
from otel_ml_service.aggregation.points import Packed
from otel_ml_service.aggregation.reduce import reduce_windows
from otel_ml_service.receiver.decode import Decoder
from tests.otlp import FakeWriter
from tests.strategies import buckets_of

FLOATS = st.floats(-1e300, 1e300) | st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1.7e308, -1.7e308])
REDUCTIONS = st.sampled_from(
    [
        *("mean", "sum", "min", "max", "count", "mean,max", "sum,min,count", "std", "last", "argmax", "rank", "p50"),
        *("sum>mean", "sum>mean,max,argmax", "mean>max", "last>sum", "count>sum", "std>mean", "max@dp", "geomean"),
    ]
).map(Reduction.parse)
STEPS = st.lists(st.lists(st.lists(FLOATS, min_size=3, max_size=3), min_size=1, max_size=5), min_size=1, max_size=3)


def packed(writer: FakeWriter, decoder: Decoder, step: int, values: Sequence[float]) -> Packed:
    """Return a step of a rank as the receiver hands it on."""
    body = writer.step(step, dict(zip("abc", values, strict=True))).SerializeToString()
    for _ in range(3):  # until its form is known
        found = decoder.protobuf("metrics", body).observations["run-1"][0]
    assert isinstance(found, Fragment)
    assert isinstance(found.partials, Packed)
    return found.partials


def windows_of(steps: Sequence[Sequence[Sequence[float]]], reduction: Reduction) -> list[list[Piece]]:
    decoder, windows = Decoder(), []
    shape: Shape | None = None
    ranks = min(map(len, steps))
    for step, values in enumerate(steps):
        pieces = []
        for rank in range(ranks):
            points = packed(FakeWriter(rank=rank), decoder, step, values[rank])
            shape = shape or Shape(0, points.series)
            source = Source(rank, rank, f"i{rank}", f"i{rank}", {"dp": rank // 2})
            pieces.append(Piece(source, step, reduction, shape, points, points.newest_ns))
        windows.append(pieces)
    return windows


@given(STEPS, REDUCTIONS)
@example([[[1.0, 2.0, 3.0], [math.nan, 1.0, 2.0]]], Reduction(("max",)))
@example([[[1.7e308, 2.0, 3.0], [1.7e308, 1.0, 2.0]]], Reduction(("mean",)))
@example([[[math.inf, 2.0, 3.0], [-math.inf, 1.0, 2.0]]], Reduction(("min", "max")))
def test_values_that_are_reduced_as_they_came_are_what_the_table_gives(
    steps: Sequence[Sequence[Sequence[float]]], reduction: Reduction
) -> None:
    windows = windows_of(steps, reduction)
    tabulated = [[piece._replace(partials=piece.partials.unpack()) for piece in pieces] for pieces in windows]

    found, expected = reduce_windows(reduction, windows), reduce_windows(reduction, tabulated)

    assert [one.values for one in found] == [one.values for one in expected] or all(
        a[:3] == b[:3] and a.rank == b.rank and np.float64(a.value).tobytes() == np.float64(b.value).tobytes()
        for one, other in zip(found, expected, strict=True)
        for a, b in zip(one.values, other.values, strict=True)
    )
    assert [(one.histograms, one.left_out, one.coarse) for one in found] == [
        (one.histograms, one.left_out, one.coarse) for one in expected
    ]


def test_a_step_to_which_each_rank_sent_one_value_of_each_metric_needs_no_table() -> None:
    windows = windows_of([[[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]], Reduction(("mean", "max")))

    found = lone_values(Reduction(("mean", "max")), windows)

    assert found is not None
    assert [values.tolist() for values in found] == [[[2.0, 3.0, 4.0]], [[3.0, 4.0, 5.0]]]


def test_two_messages_of_one_writer_are_combined_in_the_table() -> None:
    windows = windows_of([[[1.0, 2.0, 3.0]]], Reduction(("mean",), "sum"))
    [[piece]] = windows

    assert lone_values(piece.reduction, [[piece, piece._replace(seq=9)]]) is None
    assert [value.value for value in reduce_windows(piece.reduction, [[piece, piece._replace(seq=9)]])[0].values] == [
        2.0,
        4.0,
        6.0,
    ]


@given(st.floats())
def test_the_bucket_of_a_value_is_the_one_into_which_a_worker_puts_it(value: float) -> None:
    assert bucket_of(value) == buckets_of([value])
