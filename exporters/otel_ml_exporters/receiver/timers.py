"""The fast path of our own writers' spans: taken apart by the places of their fields, and written as JSON at once.

A span of ours is ids, name, kind, times, and then what many spans of a step have in common: level, step and axis. The
Collector writes fields in descending order: the same from its end to its beginning.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from otel_ml.wire import attributes as wire
from otel_ml.wire.protobuf import field, text
from otel_ml_exporters.aggregation.observation import Spans, Writer
from otel_ml_exporters.receiver.coordinates import coordinates
from otel_ml_exporters.receiver.parts import fields_of
from otel_ml_exporters.receiver.values import attributes
from otel_ml_exporters.span_lines import SpanLines

__all__ = ["Timers"]

_SCOPE = field(1, text(1, wire.SCOPE))

_SPANS = 0x12
"""Tag of ScopeSpans.spans."""

_START = struct.Struct(">H16sH8sH8sBB")
_TRACE_ID, _SPAN_ID, _PARENT_ID, _NAME = 0x0A10, 0x1208, 0x2208, 0x2A
_WITHOUT_PARENT = _START.size - 10
_TIMES = struct.Struct("<HBQBQ")
_TAGS = (_TRACE_ID, _SPAN_ID, _NAME, 0x0130, 0x39, 0x41)
"""Tags, with the length or value where it is always the same: `_TRACE_ID` is field 1 of 16 bytes, kind is INTERNAL."""

_COMMON = {9 << 3 | 2, 15 << 3 | 2}
"""Tags of Span.attributes and Span.status: what the Collector writes before the times."""

_TIMES_NAME = struct.Struct("<BQBQHBB")
_IDS = struct.Struct(">H8sH16s")

_TAILS = 4096
"""What spans have in common, remembered: one for each step and level; beyond it the cache starts anew."""


_Fields = tuple[bytes, bytes, str, bytes, int, int, bytes]
"""Ids of trace and span, the parent's as JSON, name, start and end in nanoseconds, and what spans have in common."""


class Timers:
    """Takes the messages of timers; remembers names, and what follows the times."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._tails: dict[bytes, str] = {}

    def take(self, writer: Writer, message: bytes) -> tuple[Spans] | None:
        """Return the spans of an encoded ScopeSpans; None where it has to be decoded."""
        if message.startswith(_SCOPE):
            first, last, fields = len(_SCOPE), len(message), _ours
        elif message.endswith(_SCOPE):
            first, last, fields = 0, len(message) - len(_SCOPE), _of_collector
        else:
            return None
        who = f',"role":{json.dumps(writer.role)},"rank":{writer.rank}'
        ids: list[int] = []
        lines: list[str] = []
        try:
            for tag, start, end in fields_of(message, first, last):
                if tag != _SPANS:
                    return None
                span = fields(message, start, end)
                ids.append(int.from_bytes(span[1], "big"))
                lines.append(self._line(span, who))
        except (ValueError, IndexError, struct.error, DecodeError):
            return None
        return (Spans(writer, SpanLines(lines), tuple(ids)),) if ids else None

    def _line(self, span: _Fields, who: str) -> str:
        trace_id, span_id, parent, name, start_ns, end_ns, tail = span
        return (
            f'{{"trace_id":"{trace_id.hex()}","span_id":"{span_id.hex()}","parent_id":{parent},'
            f'"name":{self._names.get(name) or self._name(name)},"start_ns":{start_ns},"end_ns":{end_ns}'
            f"{who},{self._tails.get(tail) or self._tail(tail)}"
        )

    def _name(self, name: bytes) -> str:
        if len(self._names) >= _TAILS:
            self._names.clear()
        found = self._names[name] = json.dumps(name.decode("utf-8"))
        return found

    def _tail(self, tail: bytes) -> str:
        """Return the JSON of what follows the times.

        Raises:
            ValueError: it is no timer's, or says again what came before.
        """
        message = SpanMessage.FromString(tail)
        given = attributes(message.attributes)
        if wire.TIMER_LEVEL not in given or _says_again(message):
            raise ValueError(tail)
        where = coordinates(given)
        rest = {
            "axis": None if where.step is None else where.axis,
            "step": where.step,
            "attributes": {key: value for key, value in given.items() if key not in {wire.STEP, wire.AXIS}},
            "status": _STATUS.get(message.status.code, "unset"),
        }
        if len(self._tails) >= _TAILS:
            self._tails.clear()
        found = self._tails[tail] = json.dumps(rest, separators=(",", ":"))[1:]
        return found


def _ours(message: bytes, start: int, end: int) -> _Fields:
    first, trace_id, second, span_id, third, parent_id, name_tag, size = _START.unpack_from(message, start)
    place, parent = start + _START.size, f'"{parent_id.hex()}"'
    if third != _PARENT_ID:
        name_tag, size = third >> 8, third & 0xFF
        place, parent = start + _WITHOUT_PARENT, "null"
    name = message[place : place + size]
    place += size
    kind, start_tag, start_ns, end_tag, end_ns = _TIMES.unpack_from(message, place)
    place += _TIMES.size
    tags = (first, second, name_tag, kind, start_tag, end_tag)
    if tags != _TAGS or size > 0x7F or place > end:
        raise ValueError(tags)
    return trace_id, span_id, parent, name, start_ns, end_ns, message[place:end]


def _of_collector(message: bytes, start: int, end: int) -> _Fields:
    place = start
    while message[place] in _COMMON:
        if message[place + 1] > 0x7F:
            raise ValueError(place)
        place += 2 + message[place + 1]
    tail = message[start:place]
    end_tag, end_ns, start_tag, start_ns, kind, name_tag, size = _TIMES_NAME.unpack_from(message, place)
    place += _TIMES_NAME.size
    name, parent = message[place : place + size], message[place + size : end - _IDS.size]
    second, span_id, first, trace_id = _IDS.unpack_from(message, end - _IDS.size)
    tags = (first, second, name_tag, kind, start_tag, end_tag)
    if tags != _TAGS or size > 0x7F or place + size + len(parent) + _IDS.size != end:
        raise ValueError(tags)
    return trace_id, span_id, _parent_of(parent), name, start_ns, end_ns, tail


def _parent_of(encoded: bytes) -> str:
    """Return the JSON of what the Collector writes for Span.parent_span_id; without one, that is an empty field."""
    if encoded in {b"", b"\x22\x00"}:
        return "null"
    if len(encoded) != 10 or encoded[:2] != b"\x22\x08":
        raise ValueError(encoded)
    return f'"{encoded[2:].hex()}"'


def _says_again(message: Any) -> bool:
    return bool(
        message.trace_id
        or message.span_id
        or message.parent_span_id
        or message.name
        or message.start_time_unix_nano
        or message.end_time_unix_nano
    )


_STATUS = {0: "unset", 1: "ok", 2: "error"}
