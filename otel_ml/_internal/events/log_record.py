"""OTLP log records: events of the run, notices, shutdown messages (docs/protocol.md §4.9)."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_ml.wire import attributes as keys
from otel_ml.wire.protobuf import any_value, key_values, text
from otel_ml.wire.protobuf import field as encode_field

__all__ = ["ERROR", "INFO", "WARN", "LogRecord", "encode_scope_logs", "sayable"]

_FIXED64 = struct.Struct("<Q").pack
INFO, WARN, ERROR = 9, 13, 17
"""Numbers of severities in OTLP."""

LATEST_NS = 2**63 - 1
"""The last moment that can be said; the first is 1970."""

_SCOPE = encode_field(1, text(1, keys.SCOPE))


@dataclass(frozen=True, slots=True)
class LogRecord:
    """An event, with a body and attributes that OTLP can carry.

    Attributes:
        event: what happened, such as `ml.text`.
        time_ns: since the epoch; that of the call where the record is made later.
        severity: INFO, WARN or ERROR.
    """

    event: str
    body: object = None
    attributes: Mapping[str, object] = field(default_factory=dict)
    time_ns: int = field(default_factory=time.time_ns)
    severity: int = INFO


def sayable(time_ns: int) -> int:
    """Return a moment as OTLP can carry it: from 1970 on, and before 2262; a clock may be wrong by any time.

    Examples:
        >>> sayable(-1), sayable(7), sayable(2**63)
        (0, 7, 9223372036854775807)
    """
    return min(max(0, time_ns), LATEST_NS)


def encode_scope_logs(record: LogRecord, sequence: int) -> bytes:
    """Return the body of a ScopeLogs that holds one record, with its `ml.seq`."""
    # LogRecord: time 1, severity_number 2, body 5, attributes 6, observed_time 11, event_name 12
    # The bytes before the fixed numbers are protobuf's keys, field number << 3 | wire type: 0x09 is field 1 of 64 bits,
    # 0x10 is field 2, a varint, and 0x59 is field 11 of 64 bits.
    encoded = b"".join(
        (
            b"\x09" + _FIXED64(sayable(record.time_ns)),
            b"\x10" + bytes((record.severity,)),
            encode_field(5, any_value(record.body)),
            key_values(6, {**record.attributes, keys.SEQ: sequence}),
            b"\x59" + _FIXED64(sayable(time.time_ns())),
            text(12, record.event),
        )
    )
    return _SCOPE + encode_field(2, encoded)
