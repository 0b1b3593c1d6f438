"""Perfetto's TrackEvent as wire bytes: tracks, slices, counters, instants and flows.

The numbers of fields are those of `protos/perfetto/trace/trace_packet.proto` and `track_event/*.proto` of Perfetto, the
stable interface of those who write traces without its SDK. Names are interned: the first packet with one brings it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otel_ml.wire.protobuf import FIXED64, LENGTH, double, field, integer, text, varint

__all__ = ["TrackEvents"]

# TracePacket: clock_snapshot 6, timestamp 8, trusted_packet_sequence_id 10, track_event 11, interned_data 12,
# sequence_flags 13, track_descriptor 60
_CLOCK_SNAPSHOT, _INTERNED, _DESCRIPTOR = 6, 12, 60
_AT, _EVENT_TAG = varint(8 << 3), varint(11 << 3 | LENGTH)
_SEQUENCE = integer(10, 1)
_CLEARED, _NEEDS_STATE = integer(13, 1), integer(13, 2)
_REALTIME, _BOOTTIME = 1, 6

# InternedData: event_names 2, debug_annotation_names 3
_EVENT_NAMES, _ANNOTATION_NAMES = 2, 3

# TrackEvent: debug_annotations 4, type 9, name_iid 10, track_uuid 11, double_counter_value 44, flow_ids 47,
# terminating_flow_ids 48
_BEGIN, _END, _INSTANT, _COUNTER = (integer(9, kind) for kind in (1, 2, 3, 4))
_ANNOTATION, _NAME, _TRACK, _VALUE = 4, 10, 11, 44
_FLOW, _LAST_OF_FLOW = varint(47 << 3 | FIXED64), varint(48 << 3 | FIXED64)

_EXPLICIT = integer(11, 3)
"""TrackDescriptor.child_ordering: by `sibling_order_rank`."""

_MOMENTS = 4096
"""Beginnings of times that are remembered: ranks do the same at the same time."""


class TrackEvents:
    """Encodes packets of one trace, each to be written in the order in which it was asked for.

    Times are nanoseconds since the epoch. Tracks are numbers above 0.
    """

    def __init__(self) -> None:
        self._names: dict[str, bytes] = {}
        self._notes: dict[str, bytes] = {}
        self._texts: dict[tuple[str, int], bytes] = {}
        self._late_bits: dict[int, bytes] = {}
        self._new = b""

    def beginning(self, time_ns: int) -> bytes:
        """Return what a trace begins with: the trace's clock is that of the wall."""
        clocks = (field(1, integer(1, clock) + integer(2, time_ns)) for clock in (_REALTIME, _BOOTTIME))
        return _packet(field(_CLOCK_SNAPSHOT, b"".join(clocks)) + _SEQUENCE + _CLEARED)

    def track(self, track: int, name: str, *, parent: int = 0, order: int = 0, is_counter: bool = False) -> bytes:
        """Return the description of a track; tracks of one parent are shown by `order`."""
        described = integer(1, track) + text(2, name)
        described += integer(5, parent) if parent else b""
        described += field(8, b"") if is_counter else b""
        return _packet(field(_DESCRIPTOR, described + _EXPLICIT + integer(12, order)) + _SEQUENCE)

    def begin(
        self,
        track: int,
        time_ns: int,
        name: str,
        notes: bytes,
        leads_to: Sequence[int] = (),
        led_here: Sequence[int] = (),
    ) -> bytes:
        """Return the begin of a slice.

        Args:
            track: where.
            time_ns: when.
            name: of the slice.
            notes: what is shown of it when it is selected, as `notes()` and `text_note()` return it.
            leads_to: flows that begin here.
            led_here: flows that end here.
        """
        flows = b"".join([_FLOW + flow.to_bytes(8, "little") for flow in leads_to])
        flows += b"".join([_LAST_OF_FLOW + flow.to_bytes(8, "little") for flow in led_here])
        return self._event(time_ns, notes + _BEGIN + self._name(name) + integer(_TRACK, track) + flows)

    def end(self, track: int, time_ns: int) -> bytes:
        """Return the end of the slice that began last on the track."""
        return self._event(time_ns, _END + integer(_TRACK, track))

    def instant(self, track: int, time_ns: int, name: str, notes: bytes) -> bytes:
        """Return a mark."""
        return self._event(time_ns, notes + _INSTANT + self._name(name) + integer(_TRACK, track))

    def counter(self, track: int, time_ns: int, value: float) -> bytes:
        """Return a value of a counter's track."""
        return self._event(time_ns, _COUNTER + integer(_TRACK, track) + double(_VALUE, value))

    def notes(self, values: Mapping[str, Any]) -> bytes:
        """Return names and values for a slice or a mark; to be used in the next packet, and in any after that."""
        return b"".join([field(_ANNOTATION, self._note(name, value)) for name, value in values.items()])

    def text_note(self, name: str, value: str) -> bytes:
        """Return the same as `notes` of one short text, in a third of the time."""
        content = value.encode()
        # All that stands before the text is the same for every text of this length.
        begin = self._texts.get((name, len(content)))
        if begin is None:
            whole = field(_ANNOTATION, self._note(name, value))
            begin = self._texts[name, len(content)] = whole[: len(whole) - len(content)]
        return begin + content

    def _event(self, time_ns: int, event: bytes) -> bytes:
        interned, self._new = field(_INTERNED, self._new) if self._new else b"", b""
        return _packet(
            b"".join(
                (_AT, self._time(time_ns), _SEQUENCE, _EVENT_TAG, varint(len(event)), event, interned, _NEEDS_STATE)
            )
        )

    def _time(self, time_ns: int) -> bytes:
        """Return a time as a varint of nine bytes, of which the last six are the same for 2 ms."""
        late = time_ns >> 21
        known = self._late_bits.get(late)
        if known is None:
            if len(self._late_bits) >= _MOMENTS:
                self._late_bits.clear()
            known = self._late_bits[late] = varint(late)
        return bytes((time_ns & 127 | 128, time_ns >> 7 & 127 | 128, time_ns >> 14 & 127 | 128)) + known

    def _name(self, name: str) -> bytes:
        return self._names.get(name) or self._interned(self._names, _EVENT_NAMES, name, _NAME)

    def _interned(self, known: dict[str, bytes], kind: int, name: str, place: int) -> bytes:
        """Return the field `place` that refers to `name`, which the next packet brings."""
        number = len(known) + 1
        self._new += field(kind, integer(1, number) + text(2, name))
        reference = known[name] = integer(place, number)
        return reference

    def _note(self, name: str, value: Any) -> bytes:
        reference = self._notes.get(name) or self._interned(self._notes, _ANNOTATION_NAMES, name, 1)
        return reference + self._value(value)

    def _value(self, value: Any) -> bytes:
        # DebugAnnotation: bool 2, int 4, double 5, string 6, dict_entries 11, array_values 12
        if isinstance(value, bool):
            return integer(2, value)
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return integer(4, value)
        if isinstance(value, float):
            return double(5, value)
        if isinstance(value, Mapping):
            return b"".join([field(11, self._note(str(key), item)) for key, item in value.items()])
        if isinstance(value, (list, tuple)):
            return b"".join([field(12, self._value(item)) for item in value])
        return field(6, str(value).encode("utf-8", "replace"))


def _packet(packet: bytes) -> bytes:
    return field(1, packet)
