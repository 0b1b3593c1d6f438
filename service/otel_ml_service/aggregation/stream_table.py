"""The newest points of streams that accumulate, of one meter at one step: a row each, in columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_exporters.json_text import finite_json, plain_json
from otel_ml_service.aggregation.fold import WXSUM
from otel_ml_service.aggregation.observation import Attributes, SeriesKey
from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.points import Buckets, ExplicitBuckets, Floats, Ints
from otel_ml_service.aggregation.window_chunks import bucket_of

__all__ = ["KEPT", "AnyBuckets", "Latest", "Meter", "StreamTable", "decoded"]

KEPT = WXSUM + 1
"""Statistics that are kept: points of others tell no more."""

CHUNK = 256
"""Streams that are written together."""

_SHAPES = 16
"""Shapes of which it is remembered where their streams are: a cache."""

AnyBuckets = Buckets | ExplicitBuckets
Name = tuple[str, Attributes]
Unsigned = npt.NDArray[np.uint64]


class Meter(NamedTuple):
    """What streams have in common.

    Attributes:
        writer: the engine's number of it.
        scope: None where the first version of the state did not tell it.
    """

    writer: int
    scope: str | None
    axis: str | None
    step: int | None


class Latest(NamedTuple):
    """Points of streams, column by column.

    Attributes:
        starts: where each stream begins, ns since the epoch.
        times: of each point.
        stats: [n, KEPT], what each stream has in all.
        received: when each was received last, seconds since the epoch.
        buckets: of each.
    """

    starts: Unsigned
    times: Ints
    stats: Floats
    received: Floats
    buckets: Sequence[AnyBuckets | None]


class StreamTable:
    """Finds the streams of a shape, and keeps the newest point of each.

    Attributes:
        names: of the stream in each row; None where it has been taken away.
        received_at: when something was received last, seconds since the epoch.
        newest_ns: time of the newest point.
        written: how many entries of the state it has.
    """

    __slots__ = (
        "_buckets", "_changed", "_columns", "_heads", "_of_shapes", "_rows", "meter", "names", "newest_ns",
        "received_at", "written",
    )  # fmt: skip

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.names: list[Name | None] = []
        self.received_at = 0.0
        self.newest_ns = 0
        self.written = 0
        self._rows: dict[Name, int] = {}
        self._of_shapes: dict[int, Ints] = {}
        self._columns = _columns(1)
        self._buckets: list[AnyBuckets | None] = []
        self._changed: set[int] = set()
        # Chunk → who its streams are, as JSON: that stays, while their points change with every export.
        self._heads: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows_of(self, shape: Shape) -> Ints:
        """Return the row of each series; -1 where there is none."""
        known = self._of_shapes.get(shape.number)
        if known is None:
            found = self._rows
            known = np.array([found.get(key[:2], -1) for key in shape.series], dtype=np.int64)
            if (known >= 0).all():
                if len(self._of_shapes) >= _SHAPES:
                    self._of_shapes.clear()
                self._of_shapes[shape.number] = known
        return known

    def row_of(self, name: Name) -> int | None:
        """Return the row of a stream; None where it is not known."""
        return self._rows.get(name)

    def add(self, keys: Sequence[SeriesKey]) -> Ints:
        """Add streams, and return their rows."""
        first = len(self.names)
        for key in keys:
            self._rows[key[:2]] = len(self.names)
            self.names.append(key[:2])
            self._buckets.append(None)
        if len(self.names) > len(self._columns.times):
            self._columns = _grown(self._columns, len(self.names) + first)  # twice as many, but for the first ones
        for chunk in range(first // CHUNK, (len(self.names) - 1) // CHUNK + 1):
            self._heads.pop(chunk, None)
        return np.arange(first, len(self.names))

    def at(self, rows: Ints) -> Latest:
        """Return what is known of some streams; of those in row -1 anything."""
        starts, times, stats, received, _ = self._columns
        buckets = [self._buckets[row] if row >= 0 else None for row in rows.tolist()]
        return Latest(starts[rows], times[rows], stats[rows], received[rows], buckets)

    def put(self, rows: Ints, latest: Latest) -> None:
        """Know newer points of some streams."""
        for column, values in zip(self._columns[:4], latest[:4], strict=True):
            column[rows] = values
        for row, buckets in zip(rows.tolist(), latest.buckets, strict=True):
            self._buckets[row] = buckets
        self.received_at = max(self.received_at, float(latest.received.max(initial=0.0)))
        self.newest_ns = max(self.newest_ns, int(latest.times.max(initial=0)))
        self._changed.update(np.unique(rows // CHUNK).tolist())

    def take(self, name: Name) -> Latest | None:
        """Forget a stream, and return its newest point; None where it is not known."""
        row = self._rows.pop(name, None)
        if row is None:
            return None
        rows = np.array([row])
        self.names[row] = None
        self._of_shapes.clear()
        self._heads.pop(row // CHUNK, None)
        self._changed.add(row // CHUNK)
        return self.at(rows)

    def changes(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield the entries of the state that are others than they were."""
        for chunk in sorted(self._changed):
            yield f"{self._entry}/{chunk}", self._encoded(chunk)
        self.note_written()

    def removal(self) -> Iterator[tuple[str, None]]:
        """Yield what removes its entries."""
        yield from ((f"{self._entry}/{chunk}", None) for chunk in range(self.written))

    def note_written(self) -> None:
        """Take what it has for what is stored."""
        self._changed.clear()
        # Divided and rounded up: the last entry may not be full.
        self.written = -(-len(self.names) // CHUNK)

    def restore(self, chunk: int, keys: Sequence[SeriesKey], latest: Latest) -> None:
        """Know the streams of one of its entries; those before it come first."""
        # Streams that were taken away left fewer in an entry; which entry each is in stays.
        gone = chunk * CHUNK - len(self.names)
        self.names += [None] * gone
        self._buckets += [None] * gone
        self.put(self.add(keys), latest)
        self.note_written()

    @property
    def _entry(self) -> str:
        return f"stream/{blake2b(plain_json(self.meter), digest_size=12).hexdigest()}"

    def _encoded(self, chunk: int) -> bytes | None:
        """Return who the streams of a chunk are, their buckets, and their columns; None where they are all gone."""
        begin, end = chunk * CHUNK, min((chunk + 1) * CHUNK, len(self.names))
        # A row that was taken away stays empty: rows are counted on, so that no stream changes its entry.
        rows = [row for row in range(begin, end) if self.names[row] is not None]
        if not rows:
            return None
        head = self._heads.get(chunk)
        if head is None:
            head = self._heads[chunk] = plain_json([self.meter, chunk, [self.names[row] for row in rows]])
        latest = self.at(np.array(rows))
        buckets = finite_json(latest.buckets if any(bucket is not None for bucket in latest.buckets) else None)
        return b"".join((head, b"\n", buckets, b"\n", *(column.tobytes() for column in latest[:4])))


def decoded(data: bytes) -> tuple[Meter, int, Sequence[SeriesKey], Latest]:
    """Return what an entry of the state says: whose streams, which entry of theirs, the streams and their points."""
    head, stored, body = data.split(b"\n", 2)
    meter, chunk, names = json.loads(head)
    keys = [SeriesKey(name, tuple((key, value) for key, value in pairs), "moments") for name, pairs in names]
    count, width = len(keys), 8 * len(keys)
    entries: list[Any] = json.loads(stored) or [None] * count
    buckets = [None if entry is None else bucket_of(entry) for entry in entries]
    starts, times = np.frombuffer(body, np.uint64, count), np.frombuffer(body, np.int64, count, width)
    stats = np.frombuffer(body, np.float64, count * KEPT, 2 * width).reshape(count, KEPT)
    received = np.frombuffer(body, np.float64, count, 2 * width + width * KEPT)
    return Meter(*meter), chunk, keys, Latest(starts, times, stats, received, buckets)


def _columns(count: int) -> Latest:
    return Latest(
        np.zeros(count, np.uint64), np.zeros(count, np.int64), np.full((count, KEPT), np.nan), np.zeros(count), ()
    )


def _grown(known: Latest, count: int) -> Latest:
    grown = _columns(count)
    for column, values in zip(grown[:4], known[:4], strict=True):
        column[: min(len(values), count)] = values[:count]
    return grown
