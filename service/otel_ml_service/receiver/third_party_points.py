"""Points of other SDKs whose steps, attributes or widths vary: read by compiled code, without decoding them.

What a metric and the attributes of a point mean is not worked out again here. The decoder is asked, once for each, with
a message that holds nothing else. A message that is unusual is left to it, and so are all where nothing is compiled.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from otel_ml._internal.native import native
from otel_ml.wire import attributes as wire
from otel_ml.wire.protobuf import field, key_value
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.explicit_buckets import as_sent
from otel_ml_service.aggregation.fold import MAX, STATS
from otel_ml_service.aggregation.observation import (
    Buckets,
    Observation,
    SeriesKey,
    Temporality,
    ThirdPartyKind,
    ThirdPartyPoints,
    Writer,
)
from otel_ml_service.aggregation.points import ExplicitBuckets, Partials

__all__ = ["ThirdPartyReader"]

_SCOPES = 256
"""Instrumentation scopes of which something is remembered."""

_KNOWN, _PLANS = 65_536, 64
"""Of a scope: points that are told apart, and forms of messages."""

_CREDIT, _EARNED = 10_000, 4
"""Of a scope: points that may be new, and how many known ones earn one more.

To ask what a point means takes twice as long as decoding it, which pays only where it comes again.
"""

_TOLD = MAX + 1
"""Statistics that a point tells: count, sum, minimum and maximum."""

_UNUSUAL = -1
"""Number of a point that only the decoder can tell of."""

_GAUGE, _SUM, _HISTOGRAM, _EXPONENTIAL = 0x2A, 0x3A, 0x4A, 0x52
"""Tags of what a Metric holds."""

_ONE = struct.pack("<d", 1.0)
_VALUES = {_GAUGE: b"\x21" + _ONE, _SUM: b"\x21" + _ONE, _HISTOGRAM: b"\x29" + _ONE, _EXPONENTIAL: b"\x29" + _ONE}
_ATTRIBUTES = {_GAUGE: 7, _SUM: 7, _HISTOGRAM: 9, _EXPONENTIAL: 1}
"""What stands in a point of each kind: a value, and the number of the field of attributes."""

AnyBuckets = Buckets | ExplicitBuckets

_Decode = Callable[[Writer, bytes], Sequence[Observation]]

_NOBODY = Writer("", "", "")


class _Kind(NamedTuple):
    """What points that become one observation have in common, but for their step."""

    kind: ThirdPartyKind
    temporality: Temporality
    monotonic: bool | None
    axis: str | None
    reduction: Reduction | None
    scope: str


class _Group(NamedTuple):
    """Points that become one observation: which rows of a message they are, None for all; `has_step`: they name one."""

    kind: _Kind
    has_step: bool
    rows: list[int] | None
    series: tuple[SeriesKey, ...]


class _Columns(NamedTuple):
    """The points of a message; the step is -1 where a point names none."""

    numbers: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    starts: npt.NDArray[np.uint64]
    times: npt.NDArray[np.int64]
    stats: npt.NDArray[np.float64]
    buckets: list[AnyBuckets | None] | None

    @classmethod
    def of(cls, found: tuple[Any, ...]) -> _Columns:
        """Return what compiled code found."""
        numbers, steps, starts, times, stats, buckets = found
        return cls(
            np.frombuffer(numbers, np.int64),
            np.frombuffer(steps, np.int64),
            np.frombuffer(starts, np.uint64),
            np.frombuffer(times, np.int64),
            np.frombuffer(stats, np.float64).reshape(-1, _TOLD),
            None if buckets is None else list(map(_buckets_of, buckets)),
        )

    def partials(self, rows: list[int] | None, series: tuple[SeriesKey, ...]) -> tuple[tuple[int, ...], Partials]:
        """Return when some of the points began, as it was sent, and the points."""
        starts, last, told, buckets = self.starts, self.times, self.stats, self.buckets
        if rows is not None:
            starts, last, told = starts[rows], last[rows], told[rows]
            buckets = None if buckets is None else [buckets[row] for row in rows]
        stats = np.full((len(last), STATS), np.nan)
        stats[:, :_TOLD] = told
        times = np.empty((len(last), 2), np.int64)
        # What began beyond the year 2262 is negative so, and left out as what began after its own time.
        first = starts.view(np.int64)
        times[:, 0], times[:, 1] = np.where((first > 0) & (first <= last), first, last), last
        some = tuple(buckets) if buckets is not None and any(one is not None for one in buckets) else None
        return tuple(starts.tolist()), Partials(series, stats, times, some)


class _Scope:
    """What is known of the points of one instrumentation scope.

    Attributes:
        step: of points that name none.
        numbers: what tells a point, but for its numbers → its number.
    """

    def __init__(self, encoded: bytes, decode: _Decode, step: int | None) -> None:
        self.step = step
        self.numbers: dict[bytes, int] = {}
        self._credit: float = _CREDIT
        self._encoded = encoded
        self._decode = decode
        self._meanings: list[tuple[_Kind, SeriesKey]] = []
        self._plans: dict[bytes, list[_Group]] = {}

    def number(self, key: bytes, head: int) -> int:
        """Return the number of a point, new here.

        Args:
            key: what it is told by: tag, temporality, monotonicity, name and its length, attributes.
            head: bytes of it before the attributes.
        """
        if len(self.numbers) >= _KNOWN or self._credit < 1:
            return _UNUSUAL
        self._credit -= 1
        found = self._meaning(key, head)
        self.numbers[key] = number = _UNUSUAL if found is None else len(self._meanings)
        if found is not None:
            self._meanings.append(found)
        return number

    def _meaning(self, key: bytes, head: int) -> tuple[_Kind, SeriesKey] | None:
        """Return what the decoder makes of a point that names a step; None where that is not one plain point."""
        found = points_of(self._decode, self._encoded, key, head, step=0)
        if len(found) != 1 or not isinstance(found[0], ThirdPartyPoints):
            return None
        one = found[0]
        # To the decoder `mean, max` is another group than `mean,max`: here they would be one.
        is_spelled = one.reduction is None or str(one.reduction).encode() in self._encoded + key
        partials = one.partials.unpack()
        if not is_spelled or one.step != 0 or not np.isnan(partials.stats[:, _TOLD:]).all():
            return None
        kind = _Kind(one.kind, one.temporality, one.monotonic, one.axis, one.reduction, one.scope)
        return kind, partials.series[0]

    def plan(self, columns: _Columns) -> Iterable[tuple[_Group, int | None]]:
        """Yield the points of a message that come together, with their step, as the decoder groups them."""
        steps = columns.steps
        # All of these points were known, or paid for when they were new.
        self._credit = min(_CREDIT, self._credit + len(steps) / _EARNED)
        step = int(steps[0])
        if (steps != step).any():
            yield from self._grouped(columns.numbers.tolist(), steps.tolist())
            return
        of = self.step if step < 0 else step
        # A point without a step is on no axis, and so in another group: what it is depends on whether there is one.
        key = columns.numbers.tobytes() + (b"" if of is None else b"s")
        known = self._plans.get(key)
        if known is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            known = [group for group, _ in self._grouped(columns.numbers.tolist(), steps.tolist())]
            self._plans[key] = known
        yield from ((group, of) for group in known)

    def _grouped(self, numbers: list[int], steps: list[int]) -> list[tuple[_Group, int | None]]:
        """Return points in groups of one kind and step, each of which has a series once."""
        done: list[tuple[_Kind, int | None, list[int]]] = []
        groups: dict[tuple[_Kind, int | None], tuple[list[int], set[SeriesKey]]] = {}
        for row, (number, named) in enumerate(zip(numbers, steps, strict=True)):
            kind, series = self._meanings[number]
            step = self.step if named < 0 else named
            of = kind._replace(axis=None) if step is None else kind
            rows, known = groups.setdefault((of, step), ([], set()))
            if series in known:
                done.append((of, step, rows))
                rows, known = groups[of, step] = [], set()
            rows.append(row)
            known.add(series)
        # As `ThirdPartyDecoder` has them: first those that a second point of a series has ended, then all others.
        done += [(of, step, rows) for (of, step), (rows, _) in groups.items()]
        return [
            (
                _Group(
                    of,
                    step is not None,
                    None if len(rows) == len(numbers) else rows,
                    tuple(self._meanings[numbers[row]][1] for row in rows),
                ),
                step,
            )
            for of, step, rows in done
        ]


class ThirdPartyReader:
    """Reads points without decoding them; equal shapes become the same object.

    Args:
        decode: returns the observations of an encoded ScopeMetrics.
        interned: returns the tuple of series that stands for all equal ones.
    """

    def __init__(self, decode: _Decode, interned: Callable[[tuple[SeriesKey, ...]], tuple[SeriesKey, ...]]) -> None:
        self._decode = decode
        self._interned = interned
        self._scopes: dict[bytes, _Scope | None] = {}

    def take(self, writer: Writer, encoded: bytes, rest: bytes) -> list[Observation] | None:
        """Return the observations of a ScopeMetrics; None where it has to be decoded.

        Args:
            writer: who sent it.
            encoded: its InstrumentationScope.
            rest: its other fields.
        """
        scope = self._scope(encoded)
        if native is None or scope is None:
            return None
        # Of each point that is not among `numbers` it asks `scope.number`.
        found = native.third_party_points(rest, scope.numbers, scope.number)
        if found is None:
            # Full of points that may never come again: the scope is learned anew with the next message.
            if len(scope.numbers) >= _KNOWN:
                del self._scopes[encoded]
            return None
        columns = _Columns.of(found)
        observations: list[Observation] = []
        for group, step in scope.plan(columns):
            kind, temporality, monotonic, axis, reduction, name = group.kind
            starts, partials = columns.partials(group.rows, self._interned(group.series))
            observations.append(
                ThirdPartyPoints(writer, kind, temporality, monotonic, axis, step, reduction, starts, partials, name)
            )
        return observations

    def _scope(self, encoded: bytes) -> _Scope | None:
        if encoded not in self._scopes:
            if len(self._scopes) >= _SCOPES:
                self._scopes.clear()
            self._scopes[encoded] = self._learned(encoded)
        return self._scopes[encoded]

    def _learned(self, encoded: bytes) -> _Scope | None:
        """Return a scope of another SDK; None where it is one of ours, or cannot be used."""
        name = b"x"
        # A made-up point, told as compiled code does: tag, temporality, monotonicity, name, its length in 2 bytes.
        key = bytes((_GAUGE, 0, 0)) + name + struct.pack("=H", len(name))
        found = points_of(self._decode, encoded, key, len(key), step=None)
        if len(found) != 1 or not isinstance(found[0], ThirdPartyPoints):
            return None
        return _Scope(encoded, self._decode, found[0].step)


def points_of(decode: _Decode, scope: bytes, key: bytes, head: int, *, step: int | None) -> Sequence[Observation]:
    """Return what the decoder makes of one point; nothing where it cannot be decoded.

    Args:
        decode: returns the observations of an encoded ScopeMetrics.
        scope: the encoded scope.
        key: what tells the point, see `_Scope.number`.
        head: bytes of it before the attributes.
        step: that it names.
    """
    kind, temporality, monotonic = key[:3]
    named = b"" if step is None else field(_ATTRIBUTES[kind], key_value(wire.STEP, step))
    data = field(1, _VALUES[kind] + key[head:] + named)
    # 0x10 is aggregation_temporality, 0x18 is_monotonic.
    data += bytes((0x10, temporality)) if kind != _GAUGE else b""
    data += bytes((0x18, monotonic)) if kind == _SUM else b""
    metric = field(2, field(1, key[3 : head - 2]) + field(kind >> 3, data))
    try:
        return decode(_NOBODY, field(1, scope) + metric)
    except DecodeError:
        return ()


def _buckets_of(found: tuple[Any, ...] | None) -> AnyBuckets | None:
    if found is None:
        return None
    return as_sent(*found) if len(found) == 2 else Buckets._make(found)
