"""The little of protobuf's wire format that both programs write by hand: tags, varints, OTLP's `AnyValue`.

`opentelemetry.proto` costs 23 ms and 15 MB to import; a worker that only records never loads it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Union

from otel_ml.exceptions import WireError

__all__ = ["JsonValue", "any_value", "fields", "key_value", "key_values", "message", "varint"]

JsonValue = Union[None, bool, int, float, str, bytes, Sequence["JsonValue"], Mapping[str, "JsonValue"]]  # noqa: UP007 (a recursive alias is evaluated at run time)

_INT64_MAX = 2**63 - 1
_double = struct.Struct("<d").pack


def varint(value: int) -> bytes:
    """Encode a non-negative integer (or, as protobuf does, a negative one in two's complement).

    Examples:
        >>> varint(300).hex()
        'ac02'
    """
    if value < 0:
        value += 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(field: int, body: bytes) -> bytes:
    """Return `body` as length-delimited field number `field`."""
    return varint(field << 3 | 2) + varint(len(body)) + body


def any_value(value: JsonValue) -> bytes:
    """Encode an OTLP `AnyValue`; integers beyond 64 bits become text, so that nothing is cut.

    Raises:
        WireError: `value` is of no type that OTLP has.
    """
    if value is None:
        return b""
    if isinstance(value, str):
        return message(1, value.encode("utf-8", "replace"))
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + varint(value) if abs(value) <= _INT64_MAX else message(1, str(value).encode())
    if isinstance(value, float):
        return b"\x21" + _double(value)
    if isinstance(value, bytes):
        return message(7, value)
    if isinstance(value, Mapping):
        return message(6, b"".join(message(1, key_value(key, item)) for key, item in value.items()))
    if isinstance(value, Sequence):
        return message(5, b"".join(message(1, any_value(item)) for item in value))
    raise WireError(f"{type(value).__name__} cannot travel in OTLP. Expected text, a number, bytes, a list or a dict.")


def key_value(key: str, value: JsonValue) -> bytes:
    """Encode the body of an OTLP `KeyValue`."""
    return message(1, key.encode("utf-8", "replace")) + message(2, any_value(value))


def key_values(field: int, attributes: Mapping[str, JsonValue]) -> bytes:
    """Encode `attributes` as repeated `KeyValue` in field number `field`; None values are left out."""
    return b"".join(message(field, key_value(key, value)) for key, value in attributes.items() if value is not None)


def fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message; fixed-width values come as their bytes.

    Raises:
        WireError: `body` is not a protobuf message.
    """
    position = 0
    try:
        while position < len(body):
            tag, position = _read_varint(body, position)
            number, kind = tag >> 3, tag & 7
            if kind == 0:
                value, position = _read_varint(body, position)
                yield number, value
                continue
            length = {1: 8, 5: 4}.get(kind)
            if length is None:
                if kind != 2:
                    raise WireError(f"Wire type {kind} is not one of protobuf's. Expected an OTLP message.")
                length, position = _read_varint(body, position)
            if position + length > len(body):
                raise WireError("A protobuf message ends inside a field. Expected a whole OTLP message.")
            yield number, body[position : position + length]
            position += length
    except IndexError:
        raise WireError("A protobuf message ends inside a number. Expected a whole OTLP message.") from None


def _read_varint(body: bytes, position: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
