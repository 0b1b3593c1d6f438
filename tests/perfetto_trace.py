"""What Perfetto makes of a trace: read with the protos of its own package, put together as `trace_processor` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

__all__ = ["Slice", "Trace", "read_trace"]

_EVENT = perfetto.TrackEvent


@dataclass
class Slice:
    track: tuple[str, ...]
    name: str
    begin_ns: int
    notes: Mapping[str, Any]
    end_ns: int = 0
    inside: str | None = None


@dataclass
class Trace:
    """Slices, counters (path → (time, value) in order), flows as (cause's span, effect's span), and marks."""

    slices: list[Slice] = field(default_factory=list)
    counters: dict[tuple[str, ...], list[tuple[int, float]]] = field(default_factory=dict)
    flows: set[tuple[str, str]] = field(default_factory=set)
    marks: list[Slice] = field(default_factory=list)
    order: dict[tuple[str, ...], int] = field(default_factory=dict)


def read_trace(path: Path) -> Trace:
    trace = Trace()
    tracks: dict[int, perfetto.TrackDescriptor] = {}
    events = []
    names: dict[int, str] = {}
    notes: dict[int, str] = {}
    for number, packet in enumerate(perfetto.Trace.FromString(path.read_bytes()).packet):
        # Else the packet is dropped: its names would be unknown.
        assert packet.sequence_flags == (1 if number == 0 else 2) or packet.HasField("track_descriptor")
        assert packet.trusted_packet_sequence_id
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        notes |= {entry.iid: entry.name for entry in packet.interned_data.debug_annotation_names}
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            event = packet.track_event
            told = {notes[note.name_iid]: value_of(note, notes) for note in event.debug_annotations}
            events.append((packet.timestamp, event, names[event.name_iid] if event.name_iid else "", told))
    trace.order = {path_of(uuid, tracks): track.sibling_order_rank for uuid, track in tracks.items()}
    open_slices: dict[int, list[Slice]] = {}
    begun: dict[int, str] = {}
    for time_ns, event, name, told in sorted(events, key=lambda entry: entry[0]):
        track = path_of(event.track_uuid, tracks)
        if event.type == _EVENT.TYPE_SLICE_BEGIN:
            stack = open_slices.setdefault(event.track_uuid, [])
            inside = stack[-1].notes["span_id"] if stack else None
            stack.append(Slice(track, name, time_ns, told, inside=inside))
            trace.slices.append(stack[-1])
            begun.update(dict.fromkeys(event.flow_ids, told["span_id"]))
            trace.flows |= {(begun[flow], told["span_id"]) for flow in event.terminating_flow_ids}
        elif event.type == _EVENT.TYPE_SLICE_END:
            open_slices[event.track_uuid].pop().end_ns = time_ns
        elif event.type == _EVENT.TYPE_COUNTER:
            assert tracks[event.track_uuid].HasField("counter")
            trace.counters.setdefault(track, []).append((time_ns, event.double_counter_value))
        else:
            assert event.type == _EVENT.TYPE_INSTANT
            trace.marks.append(Slice(track, name, time_ns, told))
    assert not any(open_slices.values()), "a slice never ends"
    return trace


def path_of(uuid: int, tracks: Mapping[int, perfetto.TrackDescriptor]) -> tuple[str, ...]:
    return tuple(reversed(list(names_above(uuid, tracks))))


def names_above(uuid: int, tracks: Mapping[int, perfetto.TrackDescriptor]) -> Iterator[str]:
    while uuid:
        yield tracks[uuid].name
        uuid = tracks[uuid].parent_uuid


def value_of(note: perfetto.DebugAnnotation, names: Mapping[int, str]) -> Any:
    if note.dict_entries:
        return {names[entry.name_iid]: value_of(entry, names) for entry in note.dict_entries}
    if note.array_values:
        return [value_of(entry, names) for entry in note.array_values]
    kind = note.WhichOneof("value")
    return None if kind is None else getattr(note, kind)
