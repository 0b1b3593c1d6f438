"""A request, taken apart without decoding it: resources, and the messages of each of their scopes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from otel_ml._internal.native import native
from otel_ml.wire.protobuf import LENGTH, Place, places

__all__ = ["ResourcePart", "fields_of", "head_and_rest", "key_and_value", "parts", "parts_in_python"]

_FIRST, _SECOND, _THIRD = (number << 3 | LENGTH for number in (1, 2, 3))
"""Tags: resource, scope_metrics and schema_url of ResourceMetrics, and so on: the other signals number them alike; key
and value of KeyValue."""


class ResourcePart(NamedTuple):
    """A ResourceMetrics, or ResourceSpans: its Resource, and where in the request its scopes' messages lie."""

    resource: bytes
    places: list[tuple[int, int]]


def parts_in_python(body: bytes) -> list[ResourcePart] | None:
    """Take a request apart; None where that needs a decoder: it is unusual, or no request."""
    try:
        return [_part(body, tag, start, end) for tag, start, end in fields_of(body, 0, len(body))]
    except (IndexError, ValueError):
        return None


def _part(body: bytes, tag: int, start: int, end: int) -> ResourcePart:
    resource, inside = b"", []
    if tag != _FIRST:
        raise ValueError(tag)
    for inner, first, last in fields_of(body, start, end):
        if inner == _SECOND:
            inside.append((first, last))
        # Two resources are one to protobuf, merged: a second one is left to the decoder.
        elif inner == _FIRST and not resource:
            resource = body[first:last]
        elif inner == _THIRD:
            body[first:last].decode()  # what is not a text was another field once: the decoder refuses the request
        else:
            raise ValueError(inner)
    return ResourcePart(resource, inside)


def fields_of(body: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (tag, start, end) of fields that have a length.

    Raises:
        IndexError: the message ends inside a length.
        ValueError: a field ends behind the message.
    """
    while start < end:
        # One byte of tag: the fields that are looked for have numbers below 16, and a longer tag is none of theirs.
        tag, size, start = body[start], body[start + 1], start + 2
        if size > 0x7F:
            size &= 0x7F
            # A length of up to five bytes: a message has less than 2 GiB.
            for shift in (7, 14, 21, 28):
                byte, start = body[start], start + 1
                size |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
        stop = start + size
        if stop > end:
            raise ValueError(stop)
        yield tag, start, stop
        start = stop


def head_and_rest(message: bytes) -> tuple[bytes, bytes] | None:
    """Split a ScopeMetrics into its encoded scope and its other fields; None where the scope is in between.

    Our encoder and the SDKs write fields in ascending order: the scope comes first. The Collector (`pdata`, v0.159)
    writes them in descending order: it comes last.
    """
    # Where the fields before the scope end; 0 while there are none.
    behind = 0
    try:
        for tag, start, end in fields_of(message, 0, len(message)):
            if tag != _FIRST:
                behind = end
            elif not behind:
                return message[start:end], message[end:]
            else:
                return (message[start:end], message[:behind]) if end == len(message) else None
    except (IndexError, ValueError):
        pass
    return None


def key_and_value(body: bytes, attribute: Place) -> tuple[bytes, Place | None]:
    """Return the key of a KeyValue, and where its AnyValue lies; None where it has none.

    Raises:
        WireError: it is not a protobuf message.
    """
    key, value = b"", None
    for part in places(body, attribute.start, attribute.end):
        if part.tag == _FIRST:
            key = body[part.start : part.end]
        elif part.tag == _SECOND:
            value = part
    return key, value


parts = parts_in_python if native is None else native.request_reader(ResourcePart)
