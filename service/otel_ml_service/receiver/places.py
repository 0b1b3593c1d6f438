"""Where the fields of a protobuf message lie, without decoding it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from otel_ml.exceptions import WireError

__all__ = ["FIXED64", "LENGTH", "VARINT", "Place", "key_and_value", "places"]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Protobuf's wire types."""

_KEY, _VALUE = 1 << 3 | LENGTH, 2 << 3 | LENGTH  # of KeyValue


class Place(NamedTuple):
    """A field: number and wire type as its tag, and where its value begins and ends."""

    tag: int
    start: int
    end: int


def places(body: bytes, start: int = 0, end: int | None = None) -> Iterator[Place]:
    """Yield the fields of the message that lies between `start` and `end` of `body`.

    Raises:
        WireError: it is not a protobuf message.
    """
    end = len(body) if end is None else end
    while start < end:
        tag, start = _varint(body, start, end)
        kind = tag & 7
        if kind == LENGTH:
            length, start = _varint(body, start, end)
            stop = start + length
        elif kind == VARINT:
            _, stop = _varint(body, start, end)
        elif kind in {FIXED64, FIXED32}:
            stop = start + (8 if kind == FIXED64 else 4)
        else:
            raise WireError(f"{kind} is not one of protobuf's wire types. Expected an OTLP message.")
        if stop > end:
            raise WireError("A protobuf message ends inside a field. Expected a whole OTLP message.")
        yield Place(tag, start, stop)
        start = stop


def key_and_value(body: bytes, attribute: Place) -> tuple[bytes, Place | None]:
    """Return the key of a KeyValue, and where its AnyValue lies; None where it has none.

    Raises:
        WireError: it is not a protobuf message.
    """
    key, value = b"", None
    for part in places(body, attribute.start, attribute.end):
        if part.tag == _KEY:
            key = body[part.start : part.end]
        elif part.tag == _VALUE:
            value = part
    return key, value


def _varint(body: bytes, start: int, end: int) -> tuple[int, int]:
    shift = value = 0
    for place in range(start, min(end, start + 10)):
        byte = body[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise WireError("A protobuf message ends inside a number. Expected a whole OTLP message.")
