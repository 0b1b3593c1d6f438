"""Mutations: of bytes, and of OTLP messages field by field, so that what is wrong lies deep inside something valid."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["mutated"]

MESSAGES: Mapping[str, type[Message]] = {
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
    "traces": ExportTraceServiceRequest,
}

NUMBERS = (0, 1, -1, 2, 31, 64, 127, 128, 255, 2**31 - 1, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 2**64 - 1)
DOUBLES = (0.0, -0.0, 1.0, -1.0, 5e-324, 1.8e308, -1.8e308, 1e-300, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "", "ml.step", "ml.seq", "ml.rank", "ml.step.axis", "ml.reduction", "ml.seq.points", "ml.experiment.id",
    "ml.attempt", "ml.m2", "ml.wsum", "otel_ml", "otel_ml.step.points", "otel_ml.position", "ml.params", "ml.table",
    "ml.summary", "ml.histogram", "ml.artifact", "ml.writer.end", "step", "time", "sum>max,mean", "p50", "rank",
    "histogram", "argmax", "../../x", "\x1b[31m", "a\nb", "\u202e", "9" * 400, "x" * 5000, "-1", "1e400", "\x00",
)  # fmt: skip
RAW = (b"\xff" * 8, b"\x00" * 8, b"99999999", b"1e999", b"null", b"[" * 40, b"-1", b"\r\n\r\n", b"{}", b"\xff")

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


def mutated(target: str, data: bytes, random: Random) -> bytes:
    """Return `data` with some things changed, as they may be wrong for `target`."""
    signal = target.removesuffix("_json")
    if signal in MESSAGES and random.random() < 0.9:
        changed = _of_message(target, signal, data, random)
        if changed is not None:
            return changed
    return _of_bytes(data, random)


def _of_message(target: str, signal: str, data: bytes, random: Random) -> bytes | None:
    message = MESSAGES[signal]()
    try:
        if target == signal:
            message.ParseFromString(data)
        else:
            json_format.ParseDict(json.loads(data), message, ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, ValueError, TypeError, RecursionError):
        return None
    for _ in range(random.randint(1, 4)):
        _change_field(message, random)
    return message.SerializeToString() if target == signal else json_format.MessageToJson(message, indent=None).encode()


def _change_field(message: Message, random: Random) -> None:
    """Walk down to some field, and set, clear, repeat or add it."""
    while True:
        field = random.choice(message.DESCRIPTOR.fields)
        is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        found: Any = getattr(message, field.name)
        if field.is_repeated:
            if is_message and len(found) and random.random() < 0.9:
                message = random.choice(found)
                continue
            _change_list(found, field, random)
            return
        if is_message and (message.HasField(field.name) or random.random() < 0.3):
            message = found
            message.SetInParent()
            if message.DESCRIPTOR.fields:
                continue
            return
        if random.random() < 0.1:
            message.ClearField(field.name)
        elif not is_message:
            setattr(message, field.name, _value(field, random))
        return


def _change_list(found: Any, field: Any, random: Random) -> None:
    if len(found) and random.random() < 0.3:
        del found[random.randrange(len(found))]
    elif field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        found.extend(_value(field, random) for _ in range(random.choice((1, 2, 40))))
    elif len(found):
        found.add().CopyFrom(random.choice(found))
    else:
        found.add()


def _value(field: Any, random: Random) -> Any:
    if field.cpp_type in _INTEGERS:
        low, high = _INTEGERS[field.cpp_type]
        return min(max(random.choice(NUMBERS), low), high)
    return _OTHERS[field.cpp_type](random) if field.type != FieldDescriptor.TYPE_BYTES else random.choice(RAW)


_OTHERS: Mapping[int, Callable[[Random], Any]] = {
    FieldDescriptor.CPPTYPE_DOUBLE: lambda random: random.choice(DOUBLES),
    FieldDescriptor.CPPTYPE_FLOAT: lambda random: random.choice(DOUBLES),
    FieldDescriptor.CPPTYPE_BOOL: lambda random: random.random() < 0.5,
    FieldDescriptor.CPPTYPE_STRING: lambda random: random.choice(TEXTS),
}


def _of_bytes(data: bytes, random: Random) -> bytes:
    found = bytearray(data)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(found) + 1)
        kind = random.randrange(5)
        if kind == 0 and at < len(found):
            found[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        elif kind == 1:
            found[at:at] = random.randbytes(random.randint(1, 8))
        elif kind == 2:
            del found[at : at + random.randint(1, 8)]
        elif kind == 3:
            start = random.randrange(len(found) + 1)
            found[at:at] = found[start : start + 30]
        else:
            found[at : at + 8] = random.choice(RAW)
    return bytes(found)
