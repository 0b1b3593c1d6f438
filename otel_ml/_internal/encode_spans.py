"""Finished timers become OTLP spans, as wire bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from otel_ml.wire.attributes import AXIS, SCOPE, STEP, TIMER_LEVEL
from otel_ml.wire.protobuf import field, key_value, text

if TYPE_CHECKING:
    from otel_ml._internal.axes import Step
    from otel_ml._internal.spans import Details, Recording

__all__ = ["encoded_spans"]

# Span: trace_id 1, span_id 2, parent_span_id 4, name 5, kind 6, start 7, end 8, attributes 9, events 11, status 15
_IDS = struct.Struct(">BB16sBBQ").pack
_PARENT = struct.Struct(">BBQ").pack
_KIND_TIMES = struct.Struct("<BBBQBQ").pack
_SCOPE = field(1, text(1, SCOPE))
_INTERNAL = 1


def encoded_spans(spans: Iterable[Recording], offset_ns: int) -> bytes:
    """Encode the body of a ScopeSpans; `offset_ns` is from the clock of the spans to the epoch."""
    parts = [_SCOPE]
    known: dict[tuple[Step, int], bytes] = {}
    for span in spans:
        key = (span.step, span.watch.level)
        attributes = known.get(key)
        if attributes is None:
            attributes = known[key] = _attributes(*key)
        parts.append(field(2, _encoded(span, attributes, offset_ns)))
    return b"".join(parts)


def _attributes(step: Step, level: int) -> bytes:
    out = field(9, key_value(TIMER_LEVEL, level))
    if step.axis is not None and step.index is not None:
        out += field(9, key_value(STEP, step.index)) + field(9, key_value(AXIS, step.axis.name))
    return out


def _encoded(span: Recording, attributes: bytes, offset: int) -> bytes:
    more = span.more
    ids = _IDS(0x0A, 16, span.trace_id.to_bytes(16, "big"), 0x12, 8, span.span_id)
    parent = _PARENT(0x22, 8, span.parent_id) if span.parent_id else b""
    name = text(5, span.watch.name if more is None else more.name or span.watch.name)
    times = _KIND_TIMES(0x30, _INTERNAL, 0x39, span.begin_ns + offset, 0x41, span.end_ns + offset)
    return b"".join((ids, parent, name, times, attributes, b"" if more is None else _details(more)))


def _details(more: Details) -> bytes:
    parts = [field(9, key_value(key, value)) for key, value in more.attributes.items()]
    parts += [field(11, _event(*event)) for event in more.events]
    if more.error is not None:
        parts.append(field(15, text(2, more.error) + b"\x18\x02"))  # code = STATUS_CODE_ERROR
    return b"".join(parts)


def _event(time_ns: int, name: str, attributes: Mapping[str, object]) -> bytes:
    pairs = b"".join(field(3, key_value(key, value)) for key, value in attributes.items())
    return b"\x09" + time_ns.to_bytes(8, "little") + text(2, name) + pairs
