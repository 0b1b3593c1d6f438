"""The points of one message, column-wise: as numbers (`Partials`), or still as the bytes they came in (`Packed`).

What has one layout is read together when its step closes. Reading one message of 100 points costs as much as
reading those of 100 writers at once, because numpy's price is the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from otel_ml._internal.native import native
from otel_ml.wire.attributes import OWN_COUNTS
from otel_ml_service.aggregation.fold import COUNT, M2, MAX, MIN, STATS, SUM

__all__ = [
    "Attributes",
    "Buckets",
    "Column",
    "ExplicitBuckets",
    "Held",
    "Kind",
    "Layout",
    "Packed",
    "Partials",
    "Points",
    "SeriesKey",
    "gathered",
    "gathered_in_python",
    "newest",
    "newest_in_python",
    "single",
    "stats_of",
    "sums_of",
    "times_of",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

T = TypeVar("T", bound=np.generic)

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

    Counts are whole numbers, but where buckets with other bounds were spread over them.
    """

    scale: int
    zero_count: float
    positive_offset: int
    positive: tuple[float, ...]
    negative_offset: int
    negative: tuple[float, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        return 120 + 8 * (len(self.positive) + len(self.negative))


class ExplicitBuckets(NamedTuple):
    """Buckets of one point as other SDKs send them, with bounds of their own: spread only when they are reduced.

    Attributes:
        bounds: ascending, finite, at least one; bucket i holds (bounds[i - 1], bounds[i]].
        counts: one more than there are bounds.
        low, high: no record is smaller, or larger; None where nothing is known.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about: the bounds are those of many points."""
        return 120 + 8 * len(self.counts)


class Partials(NamedTuple):
    """Points as numbers; row i belongs to `series[i]`.

    `series` is interned: the same tuple object comes back for every step of a role, so that equal
    shapes are found by identity and folded together.

    Attributes:
        stats: float64 [n, statistics], as in the table: count, sum, min, max, and what is NaN where it is not sent.
            A Gauge has count 1 and its value as sum, min and max.
        times: int64 [n, 2]: first and last record, ns since the epoch.
        buckets: None where no point has buckets.
    """

    series: tuple[SeriesKey, ...]
    stats: Floats
    times: Ints
    buckets: tuple[Buckets | ExplicitBuckets | None, ...] | None = None

    @property
    def is_lone(self) -> bool:
        """Whether every point is known to be one value."""
        return False

    def values(self, *, with_gauges: bool) -> int:
        """Return how many values of the user the points stand for.

        Args:
            with_gauges: a Gauge is all that its series has; else it is a part of a value that another point counts.
        """
        counted = [
            row
            for row, key in enumerate(self.series)
            if key.name not in OWN_COUNTS and (with_gauges or key.kind != "order")
        ]
        return int(self.stats[counted, COUNT].sum())

    @property
    def newest_ns(self) -> int:
        """Time of the newest record; 0 where there is none."""
        return int(self.times[:, 1].max(initial=0))

    def last_times(self) -> list[int]:
        """Return the time of the last record of each."""
        found: list[int] = self.times[:, 1].tolist()
        return found

    def sums(self) -> Floats:
        """Return the sum of each, as an array of its own."""
        found: Floats = self.stats[:, SUM].copy()
        return found

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        held = sum(bucket.nbytes for bucket in self.buckets or () if bucket is not None)
        return self.stats.nbytes + self.times.nbytes + held

    def unpack(self) -> Partials:
        """Return the points as numbers."""
        return self

    def some(self, rows: list[int]) -> Partials:
        """Return only these rows."""
        buckets = None if self.buckets is None else tuple(self.buckets[row] for row in rows)
        return Partials(tuple(self.series[row] for row in rows), self.stats[rows], self.times[rows], buckets)


class Column(NamedTuple):
    """A statistic in the messages of a layout: which points bring it, as which kind of number of 8 bytes, and where."""

    statistic: int
    form: type[np.generic]
    rows: Ints | slice
    offsets: Ints


class Held(NamedTuple):
    """How many values of the user points stand for: Gauges, others that are one value, and where the rest count."""

    gauges: int
    others: int
    offsets: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the numbers lie in every message of one shape.

    Attributes:
        series: of each point.
        size: bytes of a message.
        columns: of what `Partials.stats` holds.
        lone: [n], which points are one value: a Gauge's, or a Histogram's without minimum and maximum.
        first: [n], offsets of the first record's time; -1 where it is not sent.
        last: [n], offsets of the last record's time.
        is_lone: every point is one value: its sum says all of its statistics.
        held: where it is said how many values of the user they are.
        has_starts: the first record's time is sent of some point.
    """

    series: tuple[SeriesKey, ...]
    size: int
    columns: tuple[Column, ...]
    lone: npt.NDArray[np.bool_]
    first: Ints
    last: Ints
    is_lone: bool
    held: Held
    has_starts: bool

    def values(self, message: bytes, *, with_gauges: bool) -> int:
        """Return how many values of the user the points of a message stand for."""
        gauges, others, offsets = self.held
        known = gauges + others if with_gauges else others
        return known + int(_words(message)[offsets].sum()) if len(offsets) else known

    def stats(self, messages: Sequence[bytes]) -> Floats:
        """Return [messages × n, statistics], a statistic's values side by side in memory."""
        stats = np.empty((STATS, len(messages), len(self.series)))
        stats[COUNT][:, self.lone] = 1.0
        stats[M2:] = np.nan
        for statistic, form, rows, offsets in self.columns:
            stats[statistic][:, rows] = self._words(messages, offsets).view(form)
        # A single value is its own minimum and maximum; a sender may leave them out.
        if self.is_lone:
            stats[MIN], stats[MAX] = stats[SUM], stats[SUM]
        else:
            alone = stats[COUNT] == 1
            np.copyto(stats[MIN], stats[SUM], where=alone)
            np.copyto(stats[MAX], stats[SUM], where=alone)
        joined: Floats = stats.reshape(STATS, -1).T
        return joined

    def sums(self, messages: Sequence[bytes]) -> Floats:
        """Return [messages × n], the sums alone."""
        sums = np.full((len(messages), len(self.series)), np.nan)
        for statistic, form, rows, offsets in self.columns:
            if statistic == SUM:
                sums[:, rows] = self._words(messages, offsets).view(form)
        return sums.reshape(-1)

    def times(self, messages: Sequence[bytes]) -> Ints:
        """Return [messages × n, 2]."""
        times = np.empty((len(messages), len(self.series), 2), np.int64)
        times[..., 1] = last = self._words(messages, self.last)
        first = np.where(self.first < 0, 0, self._words(messages, np.maximum(self.first, 0)))
        times[..., 0] = np.where((first > 0) & (first <= last), first, last)
        return times.reshape(-1, 2)

    def last_times(self, message: bytes) -> list[int]:
        """Return the time of the last record of each point of one message."""
        found: list[int] = _words(message)[self.last].tolist()
        return found

    def starts_as_sent(self, message: bytes) -> tuple[int, ...]:
        """Return the time of the first record of each point of one message; 0 where it was not sent."""
        if not self.has_starts:
            return (0,) * len(self.series)
        first = _words(message)[np.maximum(self.first, 0)]
        first[self.first < 0] = 0
        return tuple(first.view(np.uint64).tolist())

    def newest_ns(self, message: bytes) -> int:
        """Return the time of the newest record of one message."""
        return newest(message, self.last)

    def _words(self, messages: Sequence[bytes], offsets: Ints) -> Ints:
        """Return [messages × offsets], the numbers of 8 bytes that lie there."""
        every = messages if isinstance(messages, list) else [*messages]
        return np.frombuffer(gathered(every, offsets, self.size), "<i8").reshape(len(every), len(offsets))


def _words(data: bytes) -> Ints:
    """View every byte as the first one of a 64-bit number."""
    # A stride of one byte: numbers that overlap, of which those at known offsets are read.
    words: Ints = np.ndarray((max(0, len(data) - 7),), "<i8", data, 0, (1,))
    return words


def gathered_in_python(messages: list[bytes], offsets: Ints, size: int) -> bytes:
    """Return the 8 bytes at each offset of each message, one after the other; the messages have one size."""
    starts = np.arange(0, len(messages) * size, size)[:, None]
    found: bytes = _words(b"".join(messages))[starts + offsets].tobytes()
    return found


def newest_in_python(message: bytes, offsets: Ints) -> int:
    """Return the highest of the numbers at the offsets."""
    return int(np.maximum.reduce(_words(message)[offsets]))  # what `.max()` calls, by way of Python


gathered, newest = (gathered_in_python, newest_in_python) if native is None else (native.gathered, native.newest)


class Packed(NamedTuple):
    """Points as the message they came in; reads like `Partials`. What has buckets is never packed."""

    layout: Layout
    message: bytes

    @property
    def series(self) -> tuple[SeriesKey, ...]:
        """The series of each point."""
        return self.layout.series

    @property
    def stats(self) -> Floats:
        """[n, statistics]."""
        return self.layout.stats([self.message])

    @property
    def times(self) -> Ints:
        """[n, 2]."""
        return self.layout.times([self.message])

    @property
    def buckets(self) -> None:
        """No point has any."""
        return

    @property
    def is_lone(self) -> bool:
        """Whether every point is one value: then its sum says all of its statistics."""
        return self.layout.is_lone

    def values(self, *, with_gauges: bool) -> int:
        """Return how many values of the user the points stand for."""
        return self.layout.values(self.message, with_gauges=with_gauges)

    @property
    def newest_ns(self) -> int:
        """Time of the newest record."""
        return self.layout.newest_ns(self.message)

    def last_times(self) -> list[int]:
        """Return the time of the last record of each."""
        return self.layout.last_times(self.message)

    def sums(self) -> Floats:
        """Return the sum of each, as an array of its own."""
        return self.layout.sums([self.message])

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        return self.layout.size

    def unpack(self) -> Partials:
        """Return the points as numbers."""
        return Partials(self.series, self.stats, self.times)

    def some(self, rows: list[int]) -> Partials:
        """Return only these rows."""
        return self.unpack().some(rows)


Points = Partials | Packed


def single(value: float) -> Floats:
    """Return the statistics of one value, as a Gauge tells them: [1, statistics]."""
    stats = np.full((1, STATS), np.nan)
    stats[0, COUNT], stats[0, SUM : MAX + 1] = 1.0, value
    return stats


def stats_of(every: Sequence[Points]) -> Floats:
    """Return [rows, statistics] of all points in order; what has one layout is read at once."""
    return _joined(
        layout.stats(messages) if layout is not None else _joined([points.stats for points in group])
        for layout, messages, group in _runs(every)
    )


def sums_of(every: Sequence[Points]) -> Floats:
    """Return [rows], the sums of all points in order."""
    return _joined(
        layout.sums(messages) if layout is not None else _joined([points.stats[:, SUM] for points in group])
        for layout, messages, group in _runs(every)
    )


def times_of(every: Sequence[Points]) -> Ints:
    """Return [rows, 2] of all points in order."""
    return _joined(
        layout.times(messages) if layout is not None else _joined([points.times for points in group])
        for layout, messages, group in _runs(every)
    )


def _runs(every: Sequence[Points]) -> Iterator[tuple[Layout | None, list[bytes], list[Points]]]:
    for layout, found in groupby(every, lambda points: points.layout if isinstance(points, Packed) else None):
        group = list(found)
        yield layout, [points.message for points in group if isinstance(points, Packed)], group


def _joined(arrays: Iterable[npt.NDArray[T]]) -> npt.NDArray[T]:
    every = list(arrays)
    return every[0] if len(every) == 1 else np.concatenate(every)
