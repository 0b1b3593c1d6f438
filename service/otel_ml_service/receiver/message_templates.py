"""Messages that differ in their numbers only: recognized in one comparison, read when their step closes.

A writer of ours sends the same metrics, in the same order and of the same width, step after step, and so do the other
ranks of its role. Of a message that was decoded twice in the same form the *template* is kept: its bytes, and a mask
that leaves out the numbers. What fits is as valid as the one that was decoded, because protobuf's fixed-width fields
may hold anything; so the message can be acknowledged unread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from otel_ml.exceptions import WireError
from otel_ml.wire.attributes import OWN_COUNTS
from otel_ml_service.aggregation.fold import COUNT, MAX, MIN, SUM
from otel_ml_service.aggregation.points import Column, Held, Layout, Partials, SeriesKey
from otel_ml_service.receiver.known_forms import find_form
from otel_ml_service.receiver.point_coordinates import COORDINATES
from otel_ml_service.receiver.point_positions import PointPositions, point_places

__all__ = ["Forms", "MessageTemplates", "layout_of", "mask_of"]

_BYTES = 64 * 2**20
"""Templates kept, in bytes of their messages; beyond it the cache starts anew."""

_SAME_LENGTH = 16
"""Templates of one length: each is tried, so more would cost more than decoding."""

T = TypeVar("T")

_Shapes = tuple[tuple[object, ...], ...]
"""What a message became, but for its numbers: the interned series of each observation, or the form of its spans."""

_COORDINATES = frozenset(key.encode() for key in COORDINATES)


class Forms(Generic[T]):
    """What messages of each known form mean: found by their template, learned at the second one, bounded in bytes.

    Args:
        most_bytes: of the messages whose templates are kept.

    Attributes:
        known: size of a message → its forms: mask, what is constant, and what such messages mean.
    """

    def __init__(self, most_bytes: int = _BYTES) -> None:
        self._most_bytes = most_bytes
        self.known: dict[int, list[tuple[bytes, bytes, T]]] = {}
        self._seen: dict[tuple[int, ...], tuple[_Shapes, bool]] = {}
        self._bytes = 0

    def find(self, message: bytes) -> T | None:
        """Return what the messages of this one's form mean; None where the form is not known."""
        form = find_form(self.known, message)
        return None if form is None else form[2]

    def is_second(self, message: bytes, shapes: _Shapes) -> bool:
        """Note what a message was decoded to; whether that happened once before, and its template is wanted."""
        if len(self.known.get(len(message), ())) >= _SAME_LENGTH:
            return False
        # Learned at the second message: most forms are seen once (a step that logs an extra metric), and making a
        # template costs more than decoding.
        form = (len(message), *map(id, shapes))  # they are kept, so that no other one gets the id
        seen, is_over = self._seen.get(form, (None, False))
        if seen is None:
            # Counted at the first one: what is remembered of forms that never come again is bounded, too.
            self._reserve(len(message))
        self._seen[form] = (shapes, seen is not None)
        # At the second one alone: where that gave no template, further ones would not, either.
        return seen is not None and not is_over

    def add(self, message: bytes, mask: npt.NDArray[np.uint8], meaning: T) -> None:
        """Keep what messages mean that differ from this one only where `mask` is 0."""
        # The newest first: what writers have come to send. Older ones of its size are tried after it.
        constant = (np.frombuffer(message, np.uint8) & mask).tobytes()
        self.known.setdefault(len(message), []).insert(0, (mask.tobytes(), constant, meaning))

    def _reserve(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most_bytes:
            self.known.clear()
            self._seen.clear()
            self._bytes = size


class MessageTemplates:
    """Knows the layout of messages: of the fields of a ScopeMetrics after its scope."""

    def __init__(self) -> None:
        self._forms = Forms[Layout]()

    @property
    def known(self) -> Mapping[int, Sequence[tuple[bytes, bytes, Layout]]]:
        """The forms of messages, by size."""
        return self._forms.known

    def learn(self, message: bytes, partials: Partials) -> None:
        """Note how a message was decoded; at the second one of a form make its template."""
        if not partials.series or not self._forms.is_second(message, (partials.series,)):
            return
        layout = _layout(message, partials.series)
        # The template is trusted only after it has read from this very message what the decoder found: a wrong offset
        # would put one metric's number into another.
        if layout is not None and _agrees(layout, message, partials):
            self._forms.add(message, mask_of(layout), layout)


def _layout(message: bytes, series: tuple[SeriesKey, ...]) -> Layout | None:
    try:
        points = point_places(message)
    except WireError:
        return None
    # A fragment has one step and reduction, and points with buckets are never left packed.
    if any(point.bounds or point.counts or not _COORDINATES.isdisjoint(point.keys) for point in points):
        return None
    return layout_of(points, series, len(message))


def layout_of(points: Sequence[PointPositions], series: tuple[SeriesKey, ...], size: int) -> Layout | None:
    """Return the layout of messages of `size` bytes; None where a point lacks what every point has."""
    if len(points) != len(series):
        return None
    stats = [dict(point.stats) for point in points]
    for point, found in zip(points, stats, strict=True):
        if point.time is None or SUM not in found or (MIN in found) != (MAX in found):
            return None
        # A Histogram's point without minimum and maximum is a single value: its count must not change then.
        if MIN not in found:
            found.pop(COUNT, None)
    lone = np.array([COUNT not in found for found in stats])
    first = np.array([-1 if point.start is None else point.start for point in points], dtype=np.int64)
    last = np.array([point.time for point in points], dtype=np.int64)
    columns = tuple(_columns(points, stats))
    # A weighted value has its weight and product, too.
    is_lone = bool(lone.all()) and all(column.statistic == SUM for column in columns)
    return Layout(series, size, columns, lone, first, last, is_lone, _held(series, stats), bool((first >= 0).any()))


def _held(series: tuple[SeriesKey, ...], stats: Sequence[Mapping[int, int]]) -> Held:
    """Return how many values of the user there are; where a point has no count it is one."""
    users = [(key.kind, found) for key, found in zip(series, stats, strict=True) if key.name not in OWN_COUNTS]
    ones = [kind for kind, found in users if COUNT not in found]
    gauges = ones.count("order")
    offsets = np.array([found[COUNT] for _, found in users if COUNT in found], dtype=np.int64)
    return Held(gauges, len(ones) - gauges, offsets)


def _columns(points: Sequence[PointPositions], stats: Sequence[Mapping[int, int]]) -> Iterator[Column]:
    forms: dict[tuple[int, type[np.generic]], list[int]] = {}
    for row, (point, found) in enumerate(zip(points, stats, strict=True)):
        for statistic in found:
            form = np.uint64 if statistic == COUNT else np.int64 if point.is_integer else np.float64
            forms.setdefault((statistic, form), []).append(row)
    for (statistic, form), rows in forms.items():
        offsets = np.array([stats[row][statistic] for row in rows], dtype=np.int64)
        yield Column(statistic, form, slice(None) if len(rows) == len(points) else np.array(rows), offsets)


def mask_of(layout: Layout) -> npt.NDArray[np.uint8]:
    """Return a mask that leaves out the numbers of a layout."""
    mask = np.full(layout.size, 0xFF, dtype=np.uint8)
    for offsets in (*(column.offsets for column in layout.columns), layout.first[layout.first >= 0]):
        # Numbers × their eight bytes.
        mask[offsets[:, None] + np.arange(8)] = 0
    mask[layout.last[:, None] + np.arange(8)] = 0
    # A time beyond the year 2262 does not fit into int64 and is rejected; its highest bit must be 0 here.
    mask[layout.last + 7] = 0x80
    return mask


def _agrees(layout: Layout, message: bytes, partials: Partials) -> bool:
    """Whether the layout reads from its own message what was decoded from it."""
    stats = np.ascontiguousarray(layout.stats([message]))
    return (
        partials.buckets is None
        # As bits: NaN is the same as itself then, and 0.0 is not -0.0.
        and np.array_equal(stats.view(np.int64), partials.stats.view(np.int64))
        and np.array_equal(layout.times([message]), partials.times)
    )
