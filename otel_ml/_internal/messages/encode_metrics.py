"""Partials become OTLP metrics, as wire bytes (docs/protocol.md §4.4).

One ScopeMetrics per step and reduction. A point without attributes is a constant prefix, the times of the step,
and one `struct.pack`: fields ascending and of fixed width, so that a receiver can tell the shape of a whole message by
comparing its constant bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import groupby
from operator import attrgetter

from otel_ml._internal.native import native
from otel_ml._internal.series.buckets import ExponentialBuckets
from otel_ml._internal.series.definition import Definition, Series
from otel_ml._internal.series.pending import Moments, Order, StepPartials
from otel_ml.wire.attributes import AXIS, M2, REDUCTION, REDUCTION_DEFAULT, SCOPE, SEQ, SEQ_POINTS, STEP, WSUM, WXSUM
from otel_ml.wire.protobuf import field, key_value, key_values, text, varint
from otel_ml.wire.reduction import Reduction

__all__ = ["encoded_gauge", "encoded_scopes", "scope_bytes", "scope_fields"]

# InstrumentationScope.attributes = 3; Metric: name 1, description 2, unit 3, gauge 5, histogram 9, exponential 10
_GAUGE, _HISTOGRAM, _EXPONENTIAL = 5, 9, 10
# Histogram.aggregation_temporality (field 2) = DELTA (1), after the data points.
_DELTA = b"\x10\x01"
# For the `H` at the end of a format: it is packed with the numbers of the point.
_DELTA_AS_INT = int.from_bytes(_DELTA, "little")

# Tags of HistogramDataPoint: start 2, time 3, count 4, sum 5, attributes 9, min 11, max 12
_TIMES = struct.Struct("<BQBQ").pack
_COUNT_SUM = struct.Struct("<BQBd").pack
_MIN_MAX = struct.Struct("<BdBd").pack
_SHORT = struct.Struct("<BQBdH").pack
_LONG = struct.Struct("<BQBdBdBdH").pack
# Bytes of a point: 18 of both times, 18 of count and sum, 18 of minimum and maximum; of a Gauge time and value.
_SHORT_SIZE, _LONG_SIZE, _GAUGE_SIZE = 36, 54, 18
# NumberDataPoint: time 3, as_double 4, as_int 6 (sfixed64), attributes 7
_TIME_DOUBLE = struct.Struct("<BQBd").pack
_TIME_INT = struct.Struct("<BQBq").pack
_DOUBLE = struct.Struct("<d").pack

_SCOPE_NAME = text(1, SCOPE)
_place, _reduction = attrgetter("order"), attrgetter("definition.reduction")


def _before_number(key: str) -> tuple[bytes, ...]:
    """Return what stands before the varint in a scope's attribute that is a whole number, by the varint's length."""
    heads = [b""]  # no varint is empty
    # A varint has one to ten bytes, and the lengths that stand before it include its own.
    for length in range(1, 11):
        attribute = field(3, text(1, key) + field(2, b"\x18" + bytes(length)))  # AnyValue.int_value = 3
        heads.append(attribute[:-length])
    return tuple(heads)


_STEP, _SEQ, _SEQ_POINTS = _before_number(STEP), _before_number(SEQ), _before_number(SEQ_POINTS)


def scope_bytes(
    step: int | None, axis: str | None, reduction: str | None, seq: int, points: int, defaults: str = ""
) -> bytes:
    """Encode the `scope` field of a ScopeMetrics; `defaults` names the parts of the reduction that nobody asked for.

    There are several a step; put together from nothing each would cost as much as thirty points.
    """
    parts = [_SCOPE_NAME]
    if step is not None:
        number = varint(step)
        parts += (_STEP[len(number)], number)
    seq_number, points_number = varint(seq), varint(points)
    parts += (
        _names(axis, reduction, defaults),
        _SEQ[len(seq_number)],
        seq_number,
        _SEQ_POINTS[len(points_number)],
        points_number,
    )
    return field(1, b"".join(parts))


@lru_cache(maxsize=1024)
def _names(axis: str | None, reduction: str | None, defaults: str) -> bytes:
    attributes = [(AXIS, axis), (REDUCTION, reduction), (REDUCTION_DEFAULT, defaults or None)]
    return b"".join(field(3, key_value(key, value)) for key, value in attributes if value is not None)


def scopes_in_python(
    pending: StepPartials, step: int | None, axis: str | None, next_number: Callable[[], int]
) -> Iterator[tuple[int, bytes]]:
    """Yield (points, body) for each ScopeMetrics of a step; `next_number` returns the next `ml.seq`."""
    for reduction, points, parts in _scopes(pending):
        head = scope_bytes(step, axis, str(reduction), next_number(), points, ",".join(reduction.unsaid))
        yield points, b"".join((head, *parts))


def _asked(reduction: Reduction) -> tuple[str, str | None, bool, bool]:
    """Return what compiled code keeps of a reduction: text, defaults, whether it takes first and last values."""
    edges = reduction.edges
    return str(reduction), ",".join(reduction.unsaid) or None, "first" in edges, "last" in edges


def _scopes(pending: StepPartials) -> Iterator[tuple[Reduction, int, list[bytes]]]:
    """Yield (reduction, points, parts of the metrics) for each ScopeMetrics of a step."""
    # The same order in every step: the service recognizes a message by its bytes, and decodes none whose form it knows.
    every = sorted({**pending.moments, **pending.order}, key=_place)
    times = _TIMES(0x11, pending.first_ns, 0x19, pending.last_ns)
    for reduction, series in groupby(every, key=_reduction):
        points, parts, first_too = _metrics(list(series), pending, times)
        yield reduction, points, parts
        if first_too:
            # The same series twice in one ScopeMetrics would be the same identity: the first values get their own.
            parts = [_gauge(one, pending.order[one].first_ns, pending.order[one].first) for one in first_too]
            yield reduction, len(parts), parts


def _metrics(every: list[Series], pending: StepPartials, times: bytes) -> tuple[int, list[bytes], list[Series]]:
    moments = pending.moments
    parts: list[bytes] = []
    append = parts.append
    first_too: list[Series] = []
    points = len(every)
    edges = every[0].definition.reduction.edges if pending.order else frozenset()
    for series in every:
        if series.plain:
            count, total, low, high = moments[series]
            if count == 1 and not series.ranged:
                append(series.short_prefix or _short_prefix(series))
                append(times)
                append(_SHORT(0x21, 1, 0x29, total, _DELTA_AS_INT))
            else:
                # From its first range on a series always sends one: a point of changing width would be a new form each
                # time.
                series.ranged = True
                append(series.long_prefix or _long_prefix(series))
                append(times)
                append(_LONG(0x21, count, 0x29, total, 0x59, low, 0x61, high, _DELTA_AS_INT))
            continue
        state = moments.get(series)
        if state is not None:
            buckets = pending.buckets.get(series)
            if buckets is None:
                append(_histogram(series, pending, state, times))
            else:
                append(_exponential(series, pending, state, buckets, times))
        if series in pending.order:
            # A Gauge beside the Histogram of the same series.
            points += state is not None
            append(_order(series, pending, edges, first_too))
    return points, parts, first_too


def _order(series: Series, pending: StepPartials, edges: frozenset[str], first_too: list[Series]) -> bytes:
    order = pending.order[series]
    if "last" not in edges:
        return _gauge(series, order.first_ns, order.first)
    if "first" in edges and order[:2] != order[2:]:
        first_too.append(series)
    return _gauge(series, order.last_ns, order.last)


def _metric_prefix(series: Series, kind: int, point_size: int, suffix_size: int) -> bytes:
    """Return all bytes of a Metric field before its only data point."""
    # A Metric, its data, and in these the point: each begins with its tag and the length of all that is in it.
    head = _head(series)
    point_head = b"\x0a" + varint(point_size)
    data_head = varint(kind << 3 | 2) + varint(len(point_head) + point_size + suffix_size)
    size = len(head) + len(data_head) + len(point_head) + point_size + suffix_size
    return b"\x12" + varint(size) + head + data_head + point_head


def _head(series: Series) -> bytes:
    definition = series.definition
    return text(1, definition.name) + text(2, definition.description) + text(3, definition.unit)


def _known_prefix(series: Series, kind: int, point_size: int, suffix_size: int) -> bytes:
    """Return the prefix of points of few sizes: it is made once for each."""
    constants = _constants(series)
    prefix = constants.get((kind, point_size))
    if prefix is None:
        prefix = constants[kind, point_size] = _metric_prefix(series, kind, point_size, suffix_size)
    return prefix


def _constants(series: Series) -> dict[tuple[int, int], bytes]:
    if series.constants is None:
        series.constants = {}
    return series.constants


def _short_prefix(series: Series) -> bytes:
    series.short_prefix = _metric_prefix(series, _HISTOGRAM, _SHORT_SIZE, len(_DELTA))
    return series.short_prefix


def _long_prefix(series: Series) -> bytes:
    series.long_prefix = _metric_prefix(series, _HISTOGRAM, _LONG_SIZE, len(_DELTA))
    return series.long_prefix


def _gauge_prefix(series: Series) -> bytes:
    series.short_prefix = _metric_prefix(series, _GAUGE, _GAUGE_SIZE + len(_attributes(7, series)), 0)
    return series.short_prefix


def _attributes(number: int, series: Series) -> bytes:
    if not series.attributes:
        return b""
    constants = _constants(series)
    attributes = constants.get((number, 0))
    if attributes is None:
        pairs = [field(number, key_value(key, value)) for key, value in series.attributes]
        attributes = constants[number, 0] = b"".join(pairs)
    return attributes


def _value_attributes(number: int, series: Series, pending: StepPartials) -> bytes:
    out = b""
    if series.m2:
        out += _before_double(number, M2) + _DOUBLE(pending.m2[series])
    weights = pending.weights.get(series)
    if weights is not None:
        out += _before_double(number, WSUM) + _DOUBLE(weights[0]) + _before_double(number, WXSUM) + _DOUBLE(weights[1])
    if series.sums and pending.sums is not None:
        for statistic, total in zip(series.sums, pending.sums[series], strict=True):
            out += _before_double(number, statistic.key) + _DOUBLE(total)
    return out


@cache
def _before_double(number: int, key: str) -> bytes:
    """Return what stands before the double in an attribute of a point that is one."""
    return field(number, key_value(key, 0.0))[:-8]


def _range(series: Series, state: Moments, low_tag: int, high_tag: int) -> bytes:
    if state[0] == 1 and not series.ranged:
        return b""
    series.ranged = True
    return _MIN_MAX(low_tag, state[2], high_tag, state[3])


def _histogram(series: Series, pending: StepPartials, state: Moments, times: bytes) -> bytes:
    point = b"".join(
        (
            times,
            _COUNT_SUM(0x21, state[0], 0x29, state[1]),
            # In the order of the field numbers: attributes stand between the sum and the minimum.
            _attributes(9, series),
            _value_attributes(9, series, pending),
            _range(series, state, 0x59, 0x61),
        )
    )
    return _known_prefix(series, _HISTOGRAM, len(point), len(_DELTA)) + point + _DELTA


def _exponential(
    series: Series, pending: StepPartials, state: Moments, buckets: ExponentialBuckets, times: bytes
) -> bytes:
    # Attributes are field 1 here, times 2 and 3, count 4, sum 5, scale 6 (zigzag), zero_count 7 (fixed64),
    # buckets 8 and 9, min 12, max 13.
    point = b"".join(
        (
            _attributes(1, series),
            _value_attributes(1, series, pending),
            times,
            _COUNT_SUM(0x21, state[0], 0x29, state[1]),
            b"\x30" + varint(_zigzag(buckets.scale)) if buckets.scale else b"",
            b"\x39" + buckets.zeros.to_bytes(8, "little") if buckets.zeros else b"",
            _side(8, buckets.positive),
            _side(9, buckets.negative),
            _range(series, state, 0x61, 0x69),
        )
    )
    return _metric_prefix(series, _EXPONENTIAL, len(point), len(_DELTA)) + point + _DELTA


def _known_head(series: Series) -> bytes:
    """Return what is before the data of points of any size: it is made once."""
    head = _constants(series)[_EXPONENTIAL, 0] = _head(series)
    return head


def _side(number: int, side: dict[int, int]) -> bytes:
    """Encode a field of Buckets: offset 1 (zigzag), counts 2 (packed)."""
    if not side:
        return b""
    low, high = min(side), max(side)
    # One count for each bucket between the lowest and the highest, also where nothing is in it.
    counts = b"".join(varint(side.get(index, 0)) for index in range(low, high + 1))
    offset = b"\x08" + varint(_zigzag(low)) if low else b""
    return field(number, offset + field(2, counts))


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _gauge(series: Series, time_ns: int, value: float) -> bytes:
    prefix = series.short_prefix or _gauge_prefix(series)
    return prefix + _TIME_DOUBLE(0x19, time_ns, 0x21, value) + _attributes(7, series)


def gauge_in_python(
    name: str,
    axis: str | None,
    step: int | None,
    value: int,
    time_ns: int,
    seq: int,
    attributes: Mapping[str, object] | None = None,
) -> bytes:
    """Encode a ScopeMetrics with one whole number of the protocol itself: a watermark or a position."""
    point = _TIME_INT(0x19, time_ns, 0x31, value) + key_values(7, attributes or {})
    return scope_bytes(step, axis, None, seq, 1) + _before_gauge(name, len(point)) + point


def scope_fields(bodies: Sequence[bytes]) -> bytes:
    """Return bodies of scopes as fields of a ResourceMetrics or ResourceSpans: they have one number there."""
    return b"".join([field(2, body) for body in bodies])


@lru_cache(maxsize=64)
def _before_gauge(name: str, point_size: int) -> bytes:
    # Encoded once with a point of zeros, which is then cut off: the lengths before it are right for every point of this
    # size.
    metric = field(2, text(1, name) + field(_GAUGE, field(1, bytes(point_size))))
    return metric[:-point_size]


if native is None:
    encoded_scopes: Callable[..., Iterable[tuple[int, bytes]]] = scopes_in_python
    encoded_gauge = gauge_in_python
else:
    encoded_scopes, encoded_gauge = native.encoders(
        StepPartials,
        Series,
        Definition,
        Reduction,
        Order,
        ExponentialBuckets,
        (
            scopes_in_python,
            _metrics,
            _gauge,
            gauge_in_python,
            _short_prefix,
            _long_prefix,
            _gauge_prefix,
            _known_prefix,
            _attributes,
            _known_head,
            key_values,
            _asked,
        ),
        tuple(_before_double(9, key) for key in (M2, WSUM, WXSUM)),
    )
