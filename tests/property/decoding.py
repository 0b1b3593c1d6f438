"""What both tests of the receiver's fast path compare: it, and upb alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_ml.wire.protobuf import field
from otel_ml_service.aggregation.observation import Fragment, Observation, Spans, ThirdPartyPoints
from otel_ml_service.receiver.decode import Decoder, Signal
from otel_ml_service.receiver.partial_success import UndecodableError

__all__ = ["CHANGES", "ENCODERS", "NUMBERS", "assert_same", "assert_same_fate", "changed", "decoded_by_upb"]

NUMBERS = st.integers(0, 2**63 - 1)
CHANGES = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=3)


def decoded_by_upb(body: bytes, signal: Signal = "metrics") -> Any:
    """Decode with nothing but upb."""
    request = ExportMetricsServiceRequest if signal == "metrics" else ExportTraceServiceRequest
    return Decoder()._decoded(signal, body, request.FromString(body))


def as_the_collector_writes_it(message: Any) -> bytes:
    """Encode a message with its fields in descending order; of a span, parent and status though they are empty."""
    given = {descriptor.number: (descriptor, value) for descriptor, value in message.ListFields()}
    parts = []
    for number in sorted({*given, *([4, 15] if isinstance(message, Span) else [])}, reverse=True):
        descriptor, value = given.get(number, (None, b""))
        if descriptor is None:
            parts.append(field(number, b""))
        elif descriptor.message_type is None:
            alone = type(message)(**{descriptor.name: value})
            parts.append(alone.SerializeToString())
        else:
            several = value if descriptor.is_repeated else [value]
            parts += [field(number, as_the_collector_writes_it(one)) for one in several]
    return b"".join(parts)


ENCODERS = (lambda message: message.SerializeToString(), as_the_collector_writes_it)


def plain(observation: Observation) -> object:
    """Return an observation as something that can be compared, NaN too."""
    if isinstance(observation, Spans):
        return observation.writer, list(observation.spans)
    if not isinstance(observation, (Fragment, ThirdPartyPoints)):
        return type(observation), observation
    points = observation.partials.unpack()
    rows = [[None if math.isnan(value) else value for value in row] for row in points.stats.tolist()]
    rest = {name: getattr(observation, name) for name in observation._fields if name != "partials"}
    return rest, points.series, rows, points.times.tolist(), points.buckets


def joined(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield observations, spans of a writer that follow each other as one: several scopes may be taken together."""
    before: Observation | None = None
    for one in observations:
        if isinstance(before, Spans) and isinstance(one, Spans) and before.writer == one.writer:
            before = Spans(before.writer, [*before.spans, *one.spans])
            continue
        if before is not None:
            yield before
        before = one
    if before is not None:
        yield before


def assert_same(fast: Any, slow: Any) -> None:
    assert {key: list(map(plain, joined(found))) for key, found in fast.observations.items()} == {
        key: list(map(plain, joined(found))) for key, found in slow.observations.items()
    }
    assert fast.rejections.reasons == slow.rejections.reasons
    assert fast.rejections.experiments == slow.rejections.experiments


def changed(body: bytes, changes: Any) -> bytes:
    damaged = bytearray(body)
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    return bytes(damaged)


def assert_same_fate(decoder: Decoder, body: bytes, signal: Signal) -> None:
    try:
        slow = decoded_by_upb(body, signal)
    except DecodeError:
        slow = None
    try:
        fast = decoder.protobuf(signal, body)
    except UndecodableError:
        fast = None

    assert (fast is None) == (slow is None)
    if fast is not None:
        assert_same(fast, slow)
