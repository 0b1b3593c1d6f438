"""The fast path of our own writers' messages: taken without decoding them (`heads.py`, `templates.py`)."""

from __future__ import annotations

import struct
from typing import Any

from otel_ml.wire import attributes as wire
from otel_ml.wire.protobuf import field, key_value, text
from otel_ml_exporters.aggregation.observation import Fragment, Manifest, Observation, Position, Writer
from otel_ml_exporters.aggregation.points import Packed, Partials
from otel_ml_exporters.receiver.heads import Head, Heads
from otel_ml_exporters.receiver.parts import head_and_rest
from otel_ml_exporters.receiver.resource import seconds
from otel_ml_exporters.receiver.templates import Templates

__all__ = ["Unread"]

_COUNT = struct.Struct("<BQBq")
"""The only point of a manifest or a position: time_unix_nano and as_int, each behind its tag."""

_TIME_TAG, _INT_TAG = 0x19, 0x31

_BOOT_TIME = struct.Struct("<d")


class Unread:
    """Takes messages whose form is known; learns the forms of others."""

    def __init__(self) -> None:
        self._heads = Heads()
        self._templates = Templates()

    def take(self, writer: Writer, message: bytes) -> Observation | None:
        """Return the observation of an encoded ScopeMetrics; None where it has to be decoded.

        Raises:
            DecodeError: its scope is not protobuf.
        """
        split = head_and_rest(message)
        head = self._heads.of(split[0]) if split is not None else None
        if split is None or head is None:
            return None
        rest = split[1]
        layout = self._templates.find(rest)
        if layout is None:
            return _count(writer, head, rest)
        total = len(layout.series) if head.seq_points is None else head.seq_points
        return Fragment(writer, head.axis, head.step, head.reduction, head.seq, total, Packed(layout, rest))

    def learn(self, message: bytes, found: list[Any]) -> None:
        """Note how a ScopeMetrics was decoded."""
        split = head_and_rest(message)
        if split is not None and len(found) == 1:
            [fragment] = found
            if isinstance(fragment, Fragment) and isinstance(fragment.partials, Partials):
                self._templates.learn(split[1], fragment.partials)


def _count(writer: Writer, head: Head, rest: bytes) -> Observation | None:
    """Return the manifest or the position in `rest`, if it is one."""
    for start, boot, make in _COUNTS:
        place = len(start) + _COUNT.size
        size = len(boot) + _BOOT_TIME.size if boot else 0
        if len(rest) == place + size and rest.startswith(start) and rest.startswith(boot, place):
            time_tag, time_ns, int_tag, value = _COUNT.unpack_from(rest, len(start))
            boot_s = seconds(_BOOT_TIME.unpack_from(rest, place + len(boot))[0]) if boot else 0.0
            if time_tag == _TIME_TAG and int_tag == _INT_TAG and value >= 0:
                return make(writer, head, value, time_ns, boot_s)
    return None


def _manifest(writer: Writer, head: Head, value: int, _time_ns: int, _boot_s: float) -> Manifest | None:
    if head.axis is None or head.step is None:
        return None
    return Manifest(writer, head.axis, head.step, value, head.seq)


def _position(writer: Writer, head: Head, value: int, time_ns: int, boot_s: float) -> Position:
    step = value if head.step is None else head.step
    return Position(writer, head.axis or wire.DEFAULT_AXIS, step, head.seq, time_ns, boot_s)


def _start_of(name: str, boot: bytes = b"") -> bytes:
    """Return the bytes of a Metric field of ScopeMetrics, whose Gauge has one point, before that point."""
    point = b"\0" * (_COUNT.size + (len(boot) + _BOOT_TIME.size if boot else 0))
    return field(2, text(1, name) + field(5, field(1, point)))[: -len(point)]


_BOOT = field(7, key_value(wire.BOOT_TIME, 0.0))[: -_BOOT_TIME.size]
"""The attribute of a heartbeat, before its value."""

_COUNTS = (
    (_start_of(wire.MANIFEST), b"", _manifest),
    (_start_of(wire.POSITION, _BOOT), _BOOT, _position),
    (_start_of(wire.POSITION), b"", _position),
)
