"""Finished timers become OTLP spans, as wire bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.safe_repr import text_of
from otel_ml.wire.attributes import AXIS, SCOPE, STEP, TIMER_LEVEL
from otel_ml.wire.protobuf import field, key_value, key_values, text, varint

if TYPE_CHECKING:
    from otel_ml._internal.steps.axis import Step
    from otel_ml._internal.timers.spans import Details, Recording
    from otel_ml._internal.timers.timer_definitions import TimerDefinition

__all__ = ["BEGINNING", "encoded_marks", "encoded_or_counted", "encoded_spans"]

BEGINNING = field(1, text(1, SCOPE))
"""What the body of each ScopeSpans begins with."""

# Span: trace_id 1, span_id 2, parent_span_id 4, name 5, kind 6, start 7, end 8, attributes 9, events 11,
# links 13, status 15
# Ids are bytes, the highest first; times are fixed64, the lowest byte first.
_ROOT = struct.Struct(">BB16sBBQ").pack
_CHILD = struct.Struct(">BB16sBBQBBQ").pack
# A Link has trace_id 1 and span_id 2, as a Span has.
_LINK = _ROOT
_KIND_TIMES = struct.Struct("<BBBQBQ").pack
_INTERNAL = 1
# Bytes of the ids without and with a parent, and of kind and times.
_ROOT_SIZE, _CHILD_SIZE, _TIMES_SIZE = 28, 38, 20


class _Constant(NamedTuple):
    """What is the same of all spans of a timer in a step that have no more than others.

    Attributes:
        root, child: tag and length of the span, without and with a parent.
        name, attributes: encoded.
    """

    root: bytes
    child: bytes
    name: bytes
    attributes: bytes


def encoded_spans(spans: Iterable[Recording], offset_ns: int) -> bytes:
    """Encode the body of a ScopeSpans; `offset_ns` is from the clock of the spans to the epoch."""
    parts = [BEGINNING]
    known: dict[tuple[Step, TimerDefinition], _Constant] = {}
    for span in spans:
        key = (span.step, span.definition)
        constant = known.get(key)
        if constant is None:
            constant = known[key] = _constant(*key)
        ids, times = _ids(span), _times(span.begin_ns + offset_ns, span.end_ns + offset_ns)
        # The name, and with it the length that stands before the span, may be another one than in `_Constant`.
        if span.more is not None:
            name = text(5, span.more.name) if span.more.name else constant.name
            parts.append(field(2, b"".join((ids, name, times, constant.attributes, _details(span.more)))))
        else:
            prefix = constant.child if span.parent_id else constant.root
            parts += (prefix, ids, constant.name, times, constant.attributes)
    return b"".join(parts)


def encoded_marks(marks: Iterable[Recording], offset_ns: int) -> bytes:
    """Encode spans that no timer made, as the body of a ScopeSpans."""
    parts = [BEGINNING]
    for mark in marks:
        more = mark.details
        name, ns = text(5, more.name or ""), mark.begin_ns + offset_ns
        parts.append(
            field(2, b"".join((_ids(mark), name, _times(ns, ns), _place(mark.step), _details(more)))),
        )
    return b"".join(parts)


def _times(begin_ns: int, end_ns: int) -> bytes:
    return _KIND_TIMES(0x30, _INTERNAL, 0x39, begin_ns, 0x41, end_ns)


def _place(step: Step) -> bytes:
    if step.axis is None or step.index is None:
        return b""
    return field(9, key_value(STEP, step.index)) + field(9, key_value(AXIS, step.axis.name))


def _ids(span: Recording) -> bytes:
    trace = span.trace_id.to_bytes(16, "big")
    if span.parent_id:
        return _CHILD(0x0A, 16, trace, 0x12, 8, span.span_id, 0x22, 8, span.parent_id)
    return _ROOT(0x0A, 16, trace, 0x12, 8, span.span_id)


def _constant(step: Step, definition: TimerDefinition) -> _Constant:
    name = text(5, definition.name)
    attributes = field(9, key_value(TIMER_LEVEL, definition.level)) + _place(step)
    size = len(name) + len(attributes) + _TIMES_SIZE
    return _Constant(_tag(_ROOT_SIZE + size), _tag(_CHILD_SIZE + size), name, attributes)


def _tag(size: int) -> bytes:
    """Return what stands before a span of so many bytes in a ScopeSpans."""
    return varint(2 << 3 | 2) + varint(size)


def _details(more: Details) -> bytes:
    parts = [field(9, key_value(key, value)) for key, value in more.attributes.items()]
    parts += [field(11, _event(*event)) for event in more.events]
    parts += [field(13, _link(*link)) for link in more.links]
    if more.error is not None:
        parts.append(field(15, text(2, more.error) + b"\x18\x02"))  # code = STATUS_CODE_ERROR
    return b"".join(parts)


def _event(time_ns: int, name: str, attributes: Mapping[str, object]) -> bytes:
    pairs = b"".join(field(3, key_value(key, value)) for key, value in attributes.items())
    return b"\x09" + time_ns.to_bytes(8, "little") + text(2, name) + pairs


def _link(trace_id: int, span_id: int, attributes: Mapping[str, object]) -> bytes:
    return _LINK(0x0A, 16, trace_id.to_bytes(16, "big"), 0x12, 8, span_id) + key_values(4, attributes)


def encoded_or_counted(
    encode: Callable[[list[Recording], int], bytes], spans: list[Recording], offset_ns: int
) -> Iterator[bytes]:
    """Yield spans as `encode` does; where that fails, they are lost, which is counted and said."""
    try:
        yield encode(spans, offset_ns)
    except Exception as error:  # noqa: BLE001 (what cannot be encoded must not take with it what was recorded beside it)
        reporter.dropped["spans_not_encoded"] += len(spans)
        sentence = f"Spans cannot be encoded, and are lost (spans_not_encoded): {text_of(error)}."
        reporter.say("spans-not-encoded", sentence, kind="spans-not-encoded")
