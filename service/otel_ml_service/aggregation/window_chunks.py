"""Pieces of a window as bytes: columns of doubles behind one line of JSON; what follows from another is left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.fold import STATS, SUM
from otel_ml_service.aggregation.lazy_entries import PREFIX
from otel_ml_service.aggregation.piece import Piece, Shape, Source
from otel_ml_service.aggregation.points import Buckets, ExplicitBuckets, Partials, Points, stats_of, sums_of, times_of

__all__ = ["bucket_of", "decode_pieces", "encode_windows", "points_key"]

T = TypeVar("T")

_VALUES, _NAN, _SUM, _ONE = "v", "n", "s", "1"
"""How a statistic is told: by its values, or not at all, where all are NaN, equal to the sum, or 1."""

_LONE = _ONE + _VALUES + _SUM + _SUM + _NAN + _NAN + _NAN
"""Of single values: count, sum, min, max, m2, wsum, wxsum. What comes after them is left out where it is not told."""

MAX_POINTS = 2**18
"""Points that are encoded together, as many as are folded together (`batch_fold.py`)."""


def points_key(window: int, chunk: int) -> str:
    """Return what the entry of some points of a window is called; those of a later window sort behind it."""
    return f"{PREFIX}points/{window:010d}/{chunk}"


def encode_windows(windows: Sequence[Sequence[Piece]]) -> list[bytes]:
    """Return the pieces of each window as bytes; windows that look alike are encoded together."""
    alike: dict[tuple[tuple[int, Reduction], ...], list[int]] = {}
    for number, pieces in enumerate(windows):
        form = tuple((piece.shape.number, piece.reduction) for piece in pieces)
        alike.setdefault(form, []).append(number)
    found = [b""] * len(windows)
    for form, numbers in alike.items():
        points = sum(len(piece.shape.series) for piece in windows[numbers[0]])
        together = max(1, MAX_POINTS // max(1, points))
        for begin in range(0, len(numbers), together):
            some = numbers[begin : begin + together]
            for number, data in zip(some, _encode(form, [windows[number] for number in some]), strict=True):
                found[number] = data
    return found


def _encode(form: Sequence[tuple[int, Reduction]], windows: Sequence[Sequence[Piece]]) -> Iterator[bytes]:
    """Encode windows of one form; pieces of equal shape and reduction share their columns."""
    groups: dict[tuple[int, Reduction], list[int]] = {}
    for place, kind in enumerate(form):
        groups.setdefault(kind, []).append(place)
    headers: list[list[dict[str, object]]] = [[] for _ in windows]
    bodies: list[list[bytes]] = [[] for _ in windows]
    for (shape, reduction), places in groups.items():
        points = [pieces[place].partials for place in places for pieces in windows]
        size = len(places), len(windows), len(points[0].series)
        columns, values = _columns(points, size)
        times = times_of(points).reshape(*size, 2)  # [places, windows, series, first and last]
        # Of most pieces all points have the times of the message.
        shared = bool((times == times[:, :, :1]).all())
        kept = times[:, :, :1] if shared else times
        for number, pieces in enumerate(windows):
            members = [pieces[place] for place in places]
            meters = _if_any([piece.meter for piece in members])
            headers[number].append(
                {
                    "shape": shape,
                    "reduction": [str(reduction), ",".join(reduction.unsaid)],
                    "writers": [piece.source.number for piece in members],
                    "seqs": [piece.seq for piece in members],
                    "columns": columns,
                    "shared": shared,
                    "buckets": _if_any([piece.partials.buckets for piece in members]),
                    **({"meters": meters} if meters else {}),
                }
            )
            bodies[number] += [column[:, number].tobytes() for column in values]
            bodies[number].append(kept[:, number].tobytes())
    for header, body in zip(headers, bodies, strict=True):
        yield json.dumps(header, separators=(",", ":")).encode() + b"\n" + b"".join(body)


def decode_pieces(data: bytes, shape: Callable[[int], Shape], source: Callable[[int], Source]) -> Iterator[Piece]:
    """Yield the pieces; `shape` and `source` find those of a number."""
    line, _, body = data.partition(b"\n")
    place = 0

    def floats(rows: int, width: int) -> npt.NDArray[np.float64]:
        nonlocal place
        part = np.frombuffer(body, np.float64, rows * width, place)
        place += part.nbytes
        return part.reshape(rows, width)

    for header in json.loads(line):
        form = shape(header["shape"])
        rows, width = len(header["writers"]), len(form.series)
        stats = np.full((rows, width, STATS), np.nan)
        for column, mode in enumerate(header["columns"]):
            if mode == _VALUES:
                stats[:, :, column] = floats(rows, width)
            elif mode == _ONE:
                stats[:, :, column] = 1.0
        # Only now, when the sums are read.
        for column, mode in enumerate(header["columns"]):
            if mode == _SUM:
                stats[:, :, column] = stats[:, :, SUM]
        # Times are whole numbers among columns of doubles: the same bytes, looked at as what they are.
        kept = floats(rows, 2 if header["shared"] else 2 * width).view(np.int64).reshape(rows, -1, 2)
        times = np.broadcast_to(kept, (rows, width, 2)).copy()
        reduction = Reduction.parse(*header["reduction"])
        meters = header.get("meters") or [None] * rows
        for row, (number, seq, meter) in enumerate(zip(header["writers"], header["seqs"], meters, strict=True)):
            partials = Partials(
                form.series, stats[row], times[row], _buckets(header["buckets"] and header["buckets"][row])
            )
            yield Piece(source(number), seq, reduction, form, partials, partials.newest_ns, meter)


def _columns(points: Sequence[Points], size: tuple[int, int, int]) -> tuple[str, Sequence[npt.NDArray[np.float64]]]:
    """Return how each statistic is told, and those that are told by their values, each in the shape `size`."""
    if all(each.is_lone for each in points):  # next to all that workers send: all others need not be read
        return _LONE, [sums_of(points).reshape(size)]
    stats = stats_of(points).reshape(*size, STATS)
    columns = "".join(_mode(stats, column) for column in range(STATS))
    columns = columns[: len(_LONE)] + columns[len(_LONE) :].rstrip(_NAN)
    return columns, [stats[..., column] for column, mode in enumerate(columns) if mode == _VALUES]


def _if_any(entries: list[T]) -> list[T] | None:
    return entries if any(entry is not None for entry in entries) else None


def _mode(stats: npt.NDArray[np.float64], column: int) -> str:
    """Return how a column is told; its first value says which ways are worth trying."""
    values = stats[..., column]
    if column == SUM or not values.size:
        return _VALUES
    first = values[0, 0, 0]
    # NaN alone is not equal to itself.
    if first != first and np.isnan(values).all():
        return _NAN
    if first == 1.0 and (values == 1.0).all():
        return _ONE
    if first == stats[0, 0, 0, SUM] and _same_bits(values, stats[..., SUM]):
        return _SUM
    return _VALUES


def _same_bits(left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]) -> bool:
    # As numbers, -0.0 would be 0.0, and NaN no NaN.
    return bool(np.array_equal(np.ascontiguousarray(left).view(np.int64), np.ascontiguousarray(right).view(np.int64)))


def _buckets(stored: list[list[Any] | None] | None) -> tuple[Buckets | ExplicitBuckets | None, ...] | None:
    if stored is None:
        return None
    return tuple(None if entry is None else bucket_of(entry) for entry in stored)


def bucket_of(entry: list[Any]) -> Buckets | ExplicitBuckets:
    """Return buckets from their JSON form."""
    # Four fields or six: the forms say by their length which they are.
    if len(entry) == len(ExplicitBuckets._fields):
        bounds, counts, low, high = entry
        return ExplicitBuckets(tuple(bounds), tuple(counts), low, high)
    scale, zero, positive_offset, positive, negative_offset, negative = entry
    return Buckets(scale, zero, positive_offset, tuple(positive), negative_offset, tuple(negative))
