"""What a unit's pieces are stored as, and read from: the same, whether one unit is encoded or many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_ml.wire.spool_format import request_body
from otel_ml_service.aggregation.observation import Fragment
from otel_ml_service.aggregation.piece import Piece, Shape, Source
from otel_ml_service.aggregation.points import Packed
from otel_ml_service.aggregation.window_chunks import decode_pieces, encode_windows
from otel_ml_service.receiver.decode import Decoder
from tests.benchmarks.payload import FIRST, resource_of, step_template
from tests.strategies import Rank, anything

REDUCTIONS = ("mean", "last", "mean,last", "p50", "std", "sum>max")


class Writers:
    """Two ranks, and what was interned of them."""

    def __init__(self) -> None:
        self.ranks = [Rank(number) for number in range(2)]
        self.sources = {
            number: Source(number, number, rank.writer.instance, rank.writer.instance)
            for number, rank in enumerate(self.ranks)
        }
        self.shapes: dict[tuple[object, ...], Shape] = {}

    def piece(self, number: int, step: int, records: Sequence[float], reduce: str) -> Piece:
        """Return what a rank sends."""
        self.ranks[number].clock += 0.25
        (sent,) = self.ranks[number].record(step, {"a": records, "b": records[0]}, reduce)
        shape = self.shapes.setdefault(sent.partials.series, Shape(len(self.shapes), sent.partials.series))
        return Piece(self.sources[number], sent.seq, sent.reduction, shape, sent.partials, sent.partials.newest_ns)

    def shape(self, number: int) -> Shape:
        """Return the shape of that number."""
        return next(shape for shape in self.shapes.values() if shape.number == number)


pieces_of_a_unit = st.lists(
    st.tuples(st.integers(0, 1), st.lists(anything, min_size=1, max_size=3), st.sampled_from(REDUCTIONS)), max_size=4
)


def plain(piece: Piece) -> tuple[object, ...]:
    """Return everything in a piece; numbers as bytes, because NaN is not equal to itself."""
    points = piece.partials
    buckets = [bucket and (*bucket[:3], *map(float, bucket.positive)) for bucket in points.buckets or ()]
    stats = np.where(np.isnan(points.stats), np.nan, points.stats)
    return (
        (piece.source, piece.seq, str(piece.reduction), piece.shape.number, piece.newest_ns),
        (stats.tobytes(), points.times.tobytes(), buckets),
    )


@given(units=st.lists(pieces_of_a_unit, max_size=6))
@settings(max_examples=200, deadline=None)
def test_the_pieces_of_many_units_come_back_unchanged(
    units: list[list[tuple[int, list[float], str]]],
) -> None:
    writers = Writers()
    kept = [
        [writers.piece(number, step, records, reduce) for number, records, reduce in unit]
        for step, unit in enumerate(units)
    ]

    encoded = encode_windows(kept)

    assert len(encoded) == len(kept)
    for pieces, data in zip(kept, encoded, strict=True):
        back = list(decode_pieces(data, writers.shape, writers.sources.__getitem__))
        assert sorted(map(plain, back), key=repr) == sorted(map(plain, pieces), key=repr)


@pytest.mark.parametrize(
    "options", [{}, {"weight": 2.0}, {"reduction": "sum"}, {"reduction": "last"}, {"attributes": 2}]
)
def test_a_message_that_was_not_decoded_is_stored_as_one_that_was(options: dict[str, Any]) -> None:
    template, decoder, resource = step_template(3, 2, 1, **options), Decoder(), resource_of("exp", 0, 1)
    steps = [template.metrics_at(FIRST + step, 1 + step * len(template.scopes)) for step in range(3)]
    *_, last = [decoder.protobuf("metrics", request_body(resource, [step])).observations["exp"] for step in steps]
    pieces = [
        Piece(Source(0, 0, "a", "a"), one.seq, one.reduction, Shape(number, one.partials.series), one.partials, 0)
        for number, one in enumerate(last)
        if isinstance(one, Fragment)
    ]
    assert pieces
    assert all(isinstance(piece.partials, Packed) for piece in pieces)

    unpacked = [piece._replace(partials=piece.partials.unpack()) for piece in pieces]

    assert encode_windows([pieces]) == encode_windows([unpacked])
