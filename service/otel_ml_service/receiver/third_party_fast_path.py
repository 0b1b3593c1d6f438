"""Messages of other SDKs that differ in their numbers and their step only: taken without decoding them.

An SDK sends the same points with the same attributes with every export, as our writers do (`message_templates.py`);
only that its step stands in each point, and that one message becomes several observations. Which point became which row
is not worked out again here. The decoder is asked: it gets the message once more, with the number of each point as its
time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_ml.exceptions import WireError
from otel_ml_service.aggregation.explicit_buckets import as_sent
from otel_ml_service.aggregation.observation import Observation, ThirdPartyPoints, Writer
from otel_ml_service.aggregation.points import ExplicitBuckets, Layout, Packed, Partials, Points, SeriesKey
from otel_ml_service.receiver.message_templates import Forms, layout_of, mask_of
from otel_ml_service.receiver.point_positions import PointPositions, UnknownError, point_places

__all__ = ["Decode", "ThirdPartyFastPath"]

_POSITIVE = 9
"""Bytes of the largest step; a negative number has ten."""

Decode = Callable[[Writer, bytes], Sequence[Observation]]
"""Returns the observations of an encoded ScopeMetrics."""


@dataclass(frozen=True, slots=True, eq=False)
class _Histogram:
    """Explicit buckets of a point: their bounds, and where their counts lie."""

    bounds: tuple[float, ...]
    offset: int
    counts: struct.Struct

    def read(self, message: bytes) -> ExplicitBuckets | None:
        return as_sent(self.bounds, self.counts.unpack_from(message, self.offset))


@dataclass(frozen=True, slots=True, eq=False)
class _Form:
    """What messages of one form mean.

    Attributes:
        steps: [points, digits], offsets of the bytes of the step of each point that has one.
        digits: what each of the digits is worth.
        groups: an observation for each group of points, as another message had it, and the points that are its rows;
            None where it has all of them in their order.
        histograms: of the points that have explicit buckets.
    """

    layout: Layout
    steps: npt.NDArray[np.int64]
    digits: npt.NDArray[np.int64]
    groups: tuple[tuple[ThirdPartyPoints, npt.NDArray[np.int64] | None], ...]
    histograms: Mapping[int, _Histogram]

    def read(self, writer: Writer, message: bytes) -> list[Observation] | None:
        """Return the observations; None where the points are not of one step."""
        # points × bytes of a varint, the lowest seven bits first
        digits = np.frombuffer(message, np.uint8)[self.steps] & 0x7F
        steps = digits @ self.digits
        if len(steps) and (steps != steps[0]).any():
            return None
        step = int(steps[0]) if len(steps) else None
        starts = self.layout.starts_as_sent(message)
        if self.groups[0][1] is None and not self.histograms:
            return [_like(self.groups[0][0], writer, step, starts, Packed(self.layout, message))]
        stats, times = self.layout.stats([message]), self.layout.times([message])
        buckets = {point: histogram.read(message) for point, histogram in self.histograms.items()}
        found: list[Observation] = []
        for like, rows in self.groups:
            chosen = range(len(starts)) if rows is None else rows.tolist()
            partials = Partials(like.partials.series, stats[chosen], times[chosen], _some(buckets, chosen))
            found.append(_like(like, writer, step, tuple([starts[row] for row in chosen]), partials))
        return found


class ThirdPartyFastPath:
    """Takes messages whose form is known; learns the forms of others at the second one."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._forms = Forms[_Form]()

    def take(self, writer: Writer, message: bytes) -> list[Observation] | None:
        """Return the observations of an encoded ScopeMetrics; None where it has to be decoded."""
        form = self._forms.find(message)
        return None if form is None else form.read(writer, message)

    def learn(self, message: bytes, found: Sequence[Observation]) -> None:
        """Note how a message was decoded."""
        groups = [one for one in found if isinstance(one, ThirdPartyPoints)]
        if len(groups) == len(found) and self._forms.is_second(message, tuple(one.partials.series for one in groups)):
            self._learn(message, groups)

    def _learn(self, message: bytes, found: Sequence[ThirdPartyPoints]) -> None:
        try:
            points = point_places(message)
            steps = _steps(points)
            groups = self._groups(found[0].writer, message, points)
            _check_steps(points, groups)
        except WireError:
            return
        layout = layout_of(points, _series(groups, len(points)), len(message))
        if layout is None:
            return
        mask = mask_of(layout)
        # Varints: the bit that says whether a number goes on must be the same, so that each step is as long as here.
        mask[steps] = 0x80
        for point in points:
            # Packed fixed64, 8 bytes each; the bounds stay a part of what is constant.
            if point.counts is not None:
                mask[point.counts.start : point.counts.end] = 0
        everything = np.arange(len(points))
        rows = tuple((one, None if np.array_equal(rows, everything) else rows) for one, rows in groups)
        digits = 1 << 7 * np.arange(steps.shape[1])  # seven bits of a number in each byte of a varint
        form = _Form(layout, steps, digits, rows, dict(_histograms(message, points)))
        if _agree(form.read(found[0].writer, message), found):
            self._forms.add(message, mask, form)

    def _groups(
        self, writer: Writer, message: bytes, points: Sequence[PointPositions]
    ) -> tuple[tuple[ThirdPartyPoints, npt.NDArray[np.int64]], ...]:
        """Decode the message with the number of each point as its time, and return which went where."""
        numbered = bytearray(message)
        for number, point in enumerate(points, 1):
            if point.time is None:
                raise UnknownError
            struct.pack_into("<q", numbered, point.time, number)
        found = [one for one in self._decode(writer, bytes(numbered)) if isinstance(one, ThirdPartyPoints)]
        groups = tuple((one, one.partials.times[:, 1] - 1) for one in found)
        if sorted(row for _, rows in groups for row in rows.tolist()) != list(range(len(points))):
            raise UnknownError  # not every point is taken as it is
        return groups


def _steps(points: Sequence[PointPositions]) -> npt.NDArray[np.int64]:
    """Return the offsets of the bytes of the steps; a point has one at most, and all have as many bytes."""
    places = [step for point in points for step in point.steps]
    sizes = {step.end - step.start for step in places}
    if any(len(point.steps) > 1 for point in points) or len(sizes) > 1 or max(sizes, default=0) > _POSITIVE:
        raise UnknownError
    return np.array([range(step.start, step.end) for step in places], dtype=np.int64).reshape(
        len(places), max(sizes, default=0)
    )


def _check_steps(
    points: Sequence[PointPositions], groups: Sequence[tuple[ThirdPartyPoints, npt.NDArray[np.int64]]]
) -> None:
    """Refuse points of which some have a step and others have that of their scope: these may become one group."""
    if not any(point.steps for point in points):
        return
    for one, rows in groups:
        if any(bool(points[row].steps) != (one.step is not None) for row in rows.tolist()):
            raise UnknownError


def _series(groups: Sequence[tuple[ThirdPartyPoints, npt.NDArray[np.int64]]], count: int) -> tuple[SeriesKey, ...]:
    """Return the series of each point, in the order of the message."""
    by_row = {row: key for one, rows in groups for row, key in zip(rows.tolist(), one.partials.series, strict=True)}
    return tuple(by_row[row] for row in range(count))


def _histograms(message: bytes, points: Sequence[PointPositions]) -> Iterator[tuple[int, _Histogram]]:
    for number, point in enumerate(points):
        if point.bounds is not None and point.counts is not None:
            bounds = np.frombuffer(message[point.bounds.start : point.bounds.end], "<f8")
            counts = struct.Struct(f"<{(point.counts.end - point.counts.start) // 8}Q")
            yield number, _Histogram(tuple(bounds.tolist()), point.counts.start, counts)


def _like(
    like: ThirdPartyPoints, writer: Writer, step: int | None, starts: tuple[int, ...], partials: Points
) -> ThirdPartyPoints:
    """Return points as another message had them, with their own numbers; without a step where those had none."""
    # Where no point names a step, it is that of the scope, which is constant in the form.
    of = like.step if step is None or like.step is None else step
    _, kind, temporality, monotonic, axis, _, reduction, _, _, scope = like
    return ThirdPartyPoints(writer, kind, temporality, monotonic, axis, of, reduction, starts, partials, scope)


def _some(
    buckets: Mapping[int, ExplicitBuckets | None], points: Sequence[int]
) -> tuple[ExplicitBuckets | None, ...] | None:
    if not buckets:
        return None
    found = tuple(map(buckets.get, points))
    return found if any(one is not None for one in found) else None


def _agree(read: Sequence[Observation] | None, found: Sequence[ThirdPartyPoints]) -> bool:
    """Whether a message gives the same without decoding it."""
    return read is not None and list(map(_plain, _of_others(read))) == list(map(_plain, found))


def _of_others(found: Sequence[Observation]) -> Iterator[ThirdPartyPoints]:
    return (one for one in found if isinstance(one, ThirdPartyPoints))


def _plain(one: ThirdPartyPoints) -> tuple[Any, ...]:
    """Return what can be compared, NaN too."""
    partials = one.partials.unpack()
    stats = np.ascontiguousarray(partials.stats)
    numbers = (stats.tobytes(), partials.times.tobytes(), partials.buckets, partials.series)
    return one.kind, one.temporality, one.monotonic, one.scope, one.axis, one.step, one.reduction, one.starts, numbers
