"""The points of one message, column-wise: as numbers (`Partials`), or still as the bytes they came in (`Packed`).

What has one layout is read together when its step closes. Reading one message of 100 points costs as much as
reading those of 100 writers at once, because numpy's price is the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_exporters.aggregation.fold import COUNT, MAX, MIN, SUM

__all__ = ["Attributes", "Buckets", "Kind", "Layout", "Packed", "Partials", "Points", "SeriesKey", "unpacked"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Attributes = tuple[tuple[str, str], ...]
"""Identity attributes of a point, sorted by key, values as text."""

Kind = Literal["moments", "order", "buckets"]
"""Histogram without buckets; Gauge; ExponentialHistogram."""


class SeriesKey(NamedTuple):
    """A metric within a scope: name as sent, identity attributes, kind of point."""

    name: str
    attributes: Attributes
    kind: Kind


class Buckets(NamedTuple):
    """Exponential buckets of one point (OTLP ExponentialHistogram data point).

    Counts are whole numbers, but for histograms with other bounds, of which a bucket is spread over several.
    """

    scale: int
    zero_count: float
    positive_offset: int
    positive: tuple[float, ...]
    negative_offset: int
    negative: tuple[float, ...]


class Partials(NamedTuple):
    """Points as numbers; row i belongs to `series[i]`.

    `series` is interned: the same tuple object comes back for every step of a role, so that equal
    shapes are found by identity and folded together.

    Attributes:
        stats: float64 [n, 7]: count, sum, min, max, m2, wsum, wxsum. A Gauge has count 1 and its value
            as sum, min and max. m2, wsum, wxsum are NaN where not sent.
        times: int64 [n, 2]: first and last record, ns since the epoch.
        buckets: None where no point has buckets.
    """

    series: tuple[SeriesKey, ...]
    stats: Floats
    times: Ints
    buckets: tuple[Buckets | None, ...] | None = None

    @property
    def newest_ns(self) -> int:
        """Time of the newest record; 0 where there is none."""
        return int(self.times[:, 1].max(initial=0))

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        buckets = [bucket for bucket in self.buckets or () if bucket is not None]
        held = sum(8 * (len(bucket.positive) + len(bucket.negative)) + 120 for bucket in buckets)
        return self.stats.nbytes + self.times.nbytes + held

    def unpack(self) -> Partials:
        """Return the points as numbers."""
        return self

    def some(self, rows: list[int]) -> Partials:
        """Return only these rows."""
        buckets = None if self.buckets is None else tuple(self.buckets[row] for row in rows)
        return Partials(tuple(self.series[row] for row in rows), self.stats[rows], self.times[rows], buckets)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the numbers lie in every message of one shape.

    Attributes:
        series: of each point.
        size: bytes of a message.
        stats: [7, n], offsets of what `Partials.stats` holds; -1 where it is not sent.
        lone: [n], which points are one value: a Gauge's, or a Histogram's without minimum and maximum.
        first: [n], offsets of the first record's time; -1 where it is not sent.
        last: [n], offsets of the last record's time.
    """

    series: tuple[SeriesKey, ...]
    size: int
    stats: Ints
    lone: npt.NDArray[np.bool_]
    first: Ints
    last: Ints

    def read(self, messages: Sequence[bytes]) -> tuple[Floats, Ints]:
        """Return stats [messages, n, 7] and times [messages, n, 2]."""
        words = _words(b"".join(messages))
        starts = np.arange(len(messages))[:, None] * self.size
        return self._read_stats(words, starts), self._read_times(words, starts)

    def newest_ns(self, message: bytes) -> int:
        """Return the time of the newest record of one message."""
        return int(_words(message)[self.last].max())

    def _read_stats(self, words: Ints, starts: Ints) -> Floats:
        stats = np.full((len(starts), len(self.series), len(self.stats)), np.nan)
        for column, offsets in enumerate(self.stats):
            sent = np.flatnonzero(offsets >= 0)
            if sent.size:
                found = words[starts + offsets[sent]]
                stats[:, sent, column] = found.view(np.uint64 if column == COUNT else np.float64)
        stats[:, self.lone, COUNT] = 1.0
        # A single value is its own minimum and maximum; a sender may leave them out.
        alone = (stats[:, :, COUNT] == 1) & (self.stats[SUM] >= 0)
        for column in (MIN, MAX):
            np.copyto(stats[:, :, column], stats[:, :, SUM], where=alone)
        return stats

    def _read_times(self, words: Ints, starts: Ints) -> Ints:
        last = words[starts + self.last]
        first = np.where(self.first >= 0, words[starts + np.maximum(self.first, 0)], 0)
        return np.stack((np.where((first > 0) & (first <= last), first, last), last), axis=2)


def _words(data: bytes) -> Ints:
    """View every byte as the first one of a 64-bit number."""
    words: Ints = np.ndarray((max(0, len(data) - 7),), "<i8", data, 0, (1,))
    return words


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Points as the message they came in; reads like `Partials`. What has buckets is never packed."""

    layout: Layout
    message: bytes

    @property
    def series(self) -> tuple[SeriesKey, ...]:
        """The series of each point."""
        return self.layout.series

    @property
    def stats(self) -> Floats:
        """[n, 7]."""
        return self.unpack().stats

    @property
    def times(self) -> Ints:
        """[n, 2]."""
        return self.unpack().times

    @property
    def buckets(self) -> None:
        """No point has any."""
        return

    @property
    def newest_ns(self) -> int:
        """Time of the newest record."""
        return self.layout.newest_ns(self.message)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        return self.layout.size

    def unpack(self) -> Partials:
        """Return the points as numbers."""
        stats, times = self.layout.read([self.message])
        return Partials(self.series, stats[0], times[0])

    def some(self, rows: list[int]) -> Partials:
        """Return only these rows."""
        return self.unpack().some(rows)


Points = Partials | Packed


def unpacked(every: Sequence[Points]) -> Iterator[tuple[Floats, Ints]]:
    """Yield stats [rows, 7] and times [rows, 2] of all points in order, as many at once as have one layout."""
    for layout, group in groupby(every, _layout):
        if layout is None:
            yield from ((points.stats, points.times) for points in group)
        else:
            stats, times = layout.read([points.message for points in group if isinstance(points, Packed)])
            yield stats.reshape(-1, stats.shape[2]), times.reshape(-1, 2)


def _layout(points: Points) -> Layout | None:
    return points.layout if isinstance(points, Packed) else None
