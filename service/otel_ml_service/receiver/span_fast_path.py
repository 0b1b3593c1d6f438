"""The fast path of our own writers' spans: taken apart by the places of their fields, and written as JSON at once.

A span of ours is ids, name, kind, times, and then what many spans of a step have in common: level, step and axis. The
Collector writes fields in descending order: the same from its end to its beginning.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from otel_ml._internal.native import native
from otel_ml.wire import attributes as wire
from otel_ml.wire.protobuf import field, text
from otel_ml_exporters.span_lines import SpanLines, links_as_json
from otel_ml_service.aggregation.observation import Spans, Writer
from otel_ml_service.receiver.attribute_values import attributes
from otel_ml_service.receiver.message_templates import Forms
from otel_ml_service.receiver.point_coordinates import coordinates
from otel_ml_service.receiver.request_parts import fields_of
from otel_ml_service.receiver.span_decoder import links_of

__all__ = ["SpanFastPath"]

_SCOPE = field(1, text(1, wire.SCOPE))

_SPANS = 0x12
"""Tag of ScopeSpans.spans."""

# Ours: the ids of trace, span and parent, then tag and length of the name. Where there is no parent, these two
# are found where its tag would be.
_START = struct.Struct(">H16sH8sH8sBB")
_TRACE_ID, _SPAN_ID, _PARENT_ID, _NAME = 0x0A10, 0x1208, 0x2208, 0x2A
_WITHOUT_PARENT = _START.size - 10
# Kind and its value, which is always the same; then the tags of begin and end, each with its time.
_TIMES = struct.Struct("<HBQBQ")
_TAGS = (_TRACE_ID, _SPAN_ID, _NAME, 0x0130, 0x39, 0x41)
"""Tags, with the length or value where it is always the same: `_TRACE_ID` is field 1 of 16 bytes, kind is INTERNAL."""

_COMMON = {9 << 3 | 2, 13 << 3 | 2, 15 << 3 | 2}
"""Tags of Span.attributes, Span.links and Span.status: what the Collector writes before the times."""

_TIMES_NAME = struct.Struct("<BQBQHBB")
_IDS = struct.Struct(">H8sH16s")

_TAILS = 4096
"""What spans have in common, remembered: one for each step and level; beyond it the cache starts anew."""

_FORMS_BYTES = 8 * 2**20
"""Messages whose templates are kept: what is kept of each is some five times as large."""


_LINE = '"trace_id":"%s","span_id":"%s","parent_id":%s,"name":%s,"start_ns":%s,"end_ns":%s%s'
"""A span as a line of `SpanLines`; the last place is for what its writer and others have in common with it."""

_PARTS = 11
_FILLED = [slice(place, None, _PARTS) for place in (1, 3, 5, 7, 9, 10)]
"""Of a line in parts (`_parts`): where the six fields of every span go, that differ from message to message."""

_U64 = struct.Struct("<Q")


class _Places(NamedTuple):
    """Where the fields of a span lie in its message; `parent` is None where it has none."""

    name: bytes
    trace: int
    span: int
    parent: int | None
    start: int
    end: int
    tail: int
    tail_size: int


class _Layout(NamedTuple):
    """How to read all spans of a message of a known form at once.

    Attributes:
        fields: six of each span, one span after the other.
        columns: the places among the six of the ids of trace, span and parent, the times, and what follows them.
        text: a line for each span in eleven parts; the places in `_FILLED` are for the six in this order.
        ids: the span ids, joined, as numbers.
    """

    fields: struct.Struct
    columns: Sequence[slice]
    text: list[str]
    ids: struct.Struct


_Read = tuple[str, int, Sequence[int]]
"""Lines of a `SpanLines`, how many, and the ids of the spans."""


class SpanFastPath:
    """Takes the messages of timers; remembers names, what follows the times, and forms of whole messages.

    The compiled part reads and writes a span in a twelfth of the time. Where there is none: a loop stops the same
    timers step after step, so that messages differ in ids, times and steps only. Of a form that was met twice the
    template is kept (`message_templates.py`), and its spans are then read and written in a few calls of C.
    """

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._tails: dict[bytes, str] = {}
        self._forms = Forms[_Layout](_FORMS_BYTES)
        self._shapes: dict[tuple[object, ...], tuple[object, ...]] = {}
        self._read = self._in_python if native is None else self._in_c

    def take(self, writer: Writer, messages: list[bytes]) -> tuple[Spans] | None:
        """Return the spans of some encoded ScopeSpans as one; None where one of these has to be decoded."""
        # What a tail means is the same for all writers, so it is remembered without its writer, which is put before it.
        who = f',"role":{json.dumps(writer.role)},"rank":{writer.rank},'
        try:
            found = self._read(who, messages)
        except (ValueError, IndexError, struct.error, DecodeError):
            return None
        if found is None:
            return None
        text, count, ids = found
        return (Spans(writer, SpanLines.of_text(text, count), ids),)

    def _in_c(self, who: str, messages: list[bytes]) -> _Read | None:
        assert native is not None, "that is what __init__ asked"
        found: _Read | None = native.timer_lines(_SCOPE, who, messages, self._tails, self._tail, self._name)
        return found

    def _in_python(self, who: str, messages: list[bytes]) -> _Read | None:
        texts: list[str] = []
        ids: list[int] = []
        for message in messages:
            layout = self._forms.find(message)
            found = self._one_by_one(message, who) if layout is None else self._at_once(layout, message, who)
            if found is None:
                return None
            texts.append(found[0])
            ids += found[1]
        return ("\n".join(texts), len(ids), _as_range(ids)) if ids else None

    def _at_once(self, layout: _Layout, message: bytes, who: str) -> tuple[str, tuple[int, ...]]:
        values = layout.fields.unpack(message)
        traces, spans, parents, starts, ends, tails = (values[column] for column in layout.columns)
        # Spans of one step and level have the same tail, which is then put together once.
        known = {tail: who + (self._tails.get(tail) or self._tail(tail)) for tail in set(tails)}
        text = layout.text.copy()
        for places, found in zip(
            _FILLED,
            (
                map(bytes.hex, traces),
                map(bytes.hex, spans),
                map(bytes.hex, parents),
                map(str, starts),
                map(str, ends),
                map(known.__getitem__, tails),
            ),
            strict=True,
        ):
            text[places] = found
        return "".join(text), layout.ids.unpack(b"".join(spans))

    def _one_by_one(self, message: bytes, who: str) -> tuple[str, tuple[int, ...]] | None:
        # Ours begin with the scope, the Collector's end with it.
        if message.startswith(_SCOPE):
            first, last, places_of = len(_SCOPE), len(message), _ours
        elif message.endswith(_SCOPE):
            first, last, places_of = 0, len(message) - len(_SCOPE), _of_collector
        else:
            return None
        every: list[_Places] = []
        for tag, start, end in fields_of(message, first, last):
            if tag != _SPANS:
                return None
            every.append(places_of(message, start, end))
        if not every:
            return None
        lines = [self._line(message, places, who) for places in every]
        self._learn(message, every)
        ids = (int.from_bytes(message[places.span : places.span + 8], "big") for places in every)
        return "\n".join(lines), tuple(ids)

    def _learn(self, message: bytes, every: Sequence[_Places]) -> None:
        found = tuple((places.name, places.parent is None, places.tail_size) for places in every)
        if len(self._shapes) >= _TAILS:
            self._shapes.clear()
        # Interned: `is_second` knows shapes by their ids.
        if self._forms.is_second(message, (self._shapes.setdefault(found, found),)):
            names = [self._names.get(places.name) or self._name(places.name) for places in every]
            self._forms.add(message, *_mask_and_layout(len(message), every, names))

    def _line(self, message: bytes, places: _Places, who: str) -> str:
        name, trace, span, parent, start, end, tail, tail_size = places
        rest = message[tail : tail + tail_size]
        return _LINE % (
            message[trace : trace + 16].hex(),
            message[span : span + 8].hex(),
            "null" if parent is None else f'"{message[parent : parent + 8].hex()}"',
            self._names.get(name) or self._name(name),
            *_U64.unpack_from(message, start),
            *_U64.unpack_from(message, end),
            who + (self._tails.get(rest) or self._tail(rest)),
        )

    def _name(self, name: bytes) -> str:
        if len(self._names) >= _TAILS:
            self._names.clear()
        found = self._names[name] = json.dumps(name.decode("utf-8"))
        return found

    def _tail(self, tail: bytes) -> str:
        """Return the JSON of what follows the times.

        Raises:
            ValueError: it is not a timer's, or says again what came before.
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
        links = links_of(message)
        if links:  # which no other span has
            return json.dumps({**rest, "links": links_as_json(links)}, separators=(",", ":"), default=dict)[1:]
        if len(self._tails) >= _TAILS:
            self._tails.clear()
        # Without the brace: it is the end of a line.
        found = self._tails[tail] = json.dumps(rest, separators=(",", ":"))[1:]
        return found


def _as_range(ids: list[int]) -> Sequence[int]:
    """Return ids as a range, where each is one more than the one before."""
    whole = range(ids[0], ids[0] + len(ids))
    return whole if ids == list(whole) and whole.stop < 2**64 else tuple(ids)


def _mask_and_layout(
    size: int, every: Sequence[_Places], names: Sequence[str]
) -> tuple[npt.NDArray[np.uint8], _Layout]:
    """Return what a message has in common with others of its form, and how to read those."""
    mask = np.full(size, 0xFF, np.uint8)
    # Ours; the Collector's have the ids behind the times.
    is_ascending = every[0].trace < every[0].start
    form, at = "<", 0
    for places in every:
        fields = [
            (places.trace, 16, "16s"),
            (places.span, 8, "8s"),
            (places.parent, 0 if places.parent is None else 8, "0s" if places.parent is None else "8s"),
            (places.start, 8, "Q"),
            (places.end, 8, "Q"),
            (places.tail, places.tail_size, f"{places.tail_size}s"),
        ]
        for place, length, code in fields if is_ascending else reversed(fields):
            # Without a parent there is a field of no bytes, so that all spans have six.
            begin = at if place is None else place
            mask[begin : begin + length] = 0
            form += f"{begin - at}x{code}"
            at = begin + length
    columns = [slice(column, None, len(fields)) for column in range(len(fields))]
    text = [
        part
        for places, name in zip(every, names, strict=True)
        for part in _parts(name, has_parent=places.parent is not None)
    ]
    text[0] = text[0].lstrip()  # no line is before the first one
    layout = _Layout(
        struct.Struct(f"{form}{size - at}x"),
        columns if is_ascending else columns[::-1],
        text,
        struct.Struct(f">{len(every)}Q"),
    )
    return mask, layout


def _parts(name: str, *, has_parent: bool) -> Sequence[str]:
    """Return what follows the brace of a span's line as parts, of which those in `_FILLED` are empty.

    It begins with the end of another line.
    """
    before, after = ('"', '"') if has_parent else ("null", "")
    return (
        '\n"trace_id":"',
        "",
        '","span_id":"',
        "",
        f'","parent_id":{before}',
        "",
        f'{after},"name":{name},"start_ns":',
        "",
        ',"end_ns":',
        "",
        "",
    )


def _ours(message: bytes, start: int, end: int) -> _Places:
    first, _, second, _, third, _, name_tag, size = _START.unpack_from(message, start)
    has_parent = third == _PARENT_ID
    place = start + (_START.size if has_parent else _WITHOUT_PARENT)
    if not has_parent:
        # What was read as the parent's tag and length is those of the name.
        name_tag, size = third >> 8, third & 0xFF
    name = message[place : place + size]
    place += size
    kind, start_tag, _, end_tag, _ = _TIMES.unpack_from(message, place)
    tail = place + _TIMES.size
    tags = (first, second, name_tag, kind, start_tag, end_tag)
    if tags != _TAGS or size > 0x7F or tail > end:
        raise ValueError(tags)
    return _Places(
        name, start + 2, start + 20, start + 30 if has_parent else None, place + 3, place + 12, tail, end - tail
    )


# The Collector writes fields in descending order: what ours has at the end comes first, and the ids come last.
def _of_collector(message: bytes, start: int, end: int) -> _Places:
    place = start
    while message[place] in _COMMON:
        # Its length has more than one byte: that is left to the decoder.
        if message[place + 1] > 0x7F:
            raise ValueError(place)
        place += 2 + message[place + 1]
    end_tag, _, start_tag, _, kind, name_tag, size = _TIMES_NAME.unpack_from(message, place)
    behind = place + _TIMES_NAME.size + size
    name, parent = message[behind - size : behind], message[behind : end - _IDS.size]
    second, _, first, _ = _IDS.unpack_from(message, end - _IDS.size)
    tags = (first, second, name_tag, kind, start_tag, end_tag)
    if tags != _TAGS or size > 0x7F or behind + len(parent) + _IDS.size != end:
        raise ValueError(tags)
    has_parent = _has_parent(parent)
    return _Places(
        name, end - 16, end - 26, behind + 2 if has_parent else None, place + 10, place + 1, start, place - start
    )


def _has_parent(encoded: bytes) -> bool:
    """Whether the Collector's Span.parent_span_id names a span; without one, it writes an empty field."""
    if encoded in {b"", b"\x22\x00"}:
        return False
    if len(encoded) != 10 or encoded[:2] != b"\x22\x08":
        raise ValueError(encoded)
    return True


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
