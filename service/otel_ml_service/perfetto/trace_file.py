"""A Perfetto trace of what was found: tracks of roles, ranks, threads and metrics, and flows between spans."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from otel_ml.wire.published_name import is_own
from otel_ml_exporters.records import Table
from otel_ml_service.perfetto.selection import Found, Steps
from otel_ml_service.perfetto.span_table import AS_RECORDED, Clocks, Process
from otel_ml_service.perfetto.thread_tracks import ThreadTracks
from otel_ml_service.perfetto.track_event import TrackEvents
from otel_ml_service.stored_runs.read_spans import SpanRow

__all__ = ["Written", "write_trace"]

_LONGEST_TEXT = 2000
"""Characters of a text that is shown at its mark."""

_REMEMBERED = 4096
"""What spans have in common, such as their step: encoded once, as long as there are not too many."""


@dataclass
class Written:
    """What is in the trace.

    Attributes:
        backward: flows that are not: by the clocks the effect did not begin after its cause.
        clocks: which were moved so that nothing ends before its cause begins.
    """

    spans: int = 0
    values: int = 0
    flows: int = 0
    backward: int = 0
    clocks: Clocks = AS_RECORDED


def write_trace(found: Found, steps: Steps, file: BinaryIO) -> Written:
    """Write what was found of these steps to `file`; the spans of one process at a time are looked at."""
    trace = _Trace(found, steps)
    file.writelines(trace.packets())
    return trace.written


class _Trace:
    def __init__(self, found: Found, steps: Steps) -> None:
        self.written = Written()
        self._found = found
        self._steps = steps
        self._events = TrackEvents()
        self._tracks = itertools.count(1)
        self._order = itertools.count(1)
        self._leads_to: dict[str, list[int]] = {}
        self._led_here: dict[str, list[int]] = {}
        self._notes: dict[tuple[object, ...], bytes] = {}

    def packets(self) -> Iterator[bytes]:
        self.written.clocks = self._found.spans.align_clocks()
        yield self._events.beginning(self._found.begin_ns)
        yield from self._marks()
        self._number_flows()
        roles = sorted({process.role for process in self._found.spans.processes})
        for role in roles:
            track = next(self._tracks)
            yield self._events.track(track, role, order=next(self._order))
            for process in sorted(one for one in self._found.spans.processes if one.role == role):
                yield from self._process(process, track)
        yield from self._counters()

    def _number_flows(self) -> None:
        for flow in self._found.spans.flows():
            if not flow.is_forward:
                self.written.backward += 1
                continue
            self.written.flows += 1
            self._leads_to.setdefault(flow.cause, []).append(self.written.flows)
            self._led_here.setdefault(flow.effect, []).append(self.written.flows)

    def _process(self, process: Process, parent: int) -> Iterator[bytes]:
        own = next(self._tracks)
        yield self._events.track(own, f"rank {process.rank}", parent=parent, order=process.rank + 1)
        threads, tracks = ThreadTracks(), list[int]()
        for span in self._found.spans.of(process):
            for number, time_ns in threads.over_by(span["start_ns"]):
                yield self._events.end(tracks[number], time_ns)
            # A span may end before it begins, where its clock was set back.
            end_ns, thread = max(span["start_ns"], span["end_ns"]), _thread(span)
            trace, parent_id = span["trace_id"], span["parent_id"]
            number = threads.place(trace + span["span_id"], parent_id and trace + parent_id, end_ns, thread)
            if number == len(tracks):
                # The first that names no thread is on the rank's own track: most ranks need no other.
                is_first = not number and not thread
                tracks.append(own if is_first else next(self._tracks))
                if not is_first:
                    name = thread or f"thread {number + 1}"
                    yield self._events.track(tracks[number], name, parent=own, order=number + 1)
            yield self._begin(tracks[number], span)
        for number, time_ns in threads.over_by(math.inf):
            yield self._events.end(tracks[number], time_ns)

    def _begin(self, track: int, span: SpanRow) -> bytes:
        self.written.spans += 1
        name, key = span["name"], span["trace_id"] + span["span_id"]
        leads_to, led_here = self._leads_to.get(key, ()), self._led_here.get(key, ())
        return self._events.begin(track, span["start_ns"], name, self._notes_of(span), leads_to, led_here)

    def _notes_of(self, span: SpanRow) -> bytes:
        # Attributes as text: a mapping cannot be a key.
        shared = span["axis"], span["step"], span["status"], str(span["attributes"])
        found = self._notes.get(shared)
        if found is None:
            if len(self._notes) >= _REMEMBERED:
                self._notes.clear()
            found = self._notes[shared] = self._events.notes(_notes(span))
        ids = (self._events.text_note(key, span[key]) for key in ("trace_id", "span_id"))
        return found + b"".join(ids)

    def _counters(self) -> Iterator[bytes]:
        for title, is_ours in (("metrics", False), ("metrics of otel_ml", True)):
            points = sorted(point for point in self._found.values if is_own(point.name) is is_ours)
            if not points:
                continue
            group = next(self._tracks)
            yield self._events.track(group, title, order=next(self._order))
            for number, (name, of_name) in enumerate(itertools.groupby(points, key=self._counter_name), 1):
                track = next(self._tracks)
                yield self._events.track(track, name, parent=group, order=number, is_counter=True)
                for time_ns, value in sorted(self._found.values[point] for point in of_name):
                    if math.isfinite(value):
                        self.written.values += 1
                        yield self._events.counter(track, time_ns, value)

    def _counter_name(self, point: tuple[str, str, int, int]) -> str:
        name, axis, _, _ = point
        return name if axis == self._steps.axis else f"{name} ({axis})"

    def _marks(self) -> Iterator[bytes]:
        """Yield what was found and what was said, each on a track above all others."""
        marks = {"findings": list(self._findings()), "texts": list(self._texts())}
        for title, entries in marks.items():
            if entries:
                track = next(self._tracks)
                yield self._events.track(track, title, order=next(self._order))
                for time_ns, name, notes in entries:
                    yield self._events.instant(track, time_ns, name, self._events.notes(notes))

    def _findings(self) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        begins = self._found.spans.begins(self._steps.axis)
        for table in self._found.findings.values():
            if table.axis != self._steps.axis:
                continue
            for row in _rows(table):
                first = max(row["since"], self._steps.first)
                last = math.inf if self._steps.last is None else self._steps.last
                if row["since"] <= last and (row.get("until") is None or row["until"] >= first):
                    # The step at which it began may have no span: then it is shown at the next one that has.
                    then = min((step for step in begins if step >= first), default=None)
                    yield self._found.begin_ns if then is None else begins[then], _sentence(row), row

    def _texts(self) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
        for text in self._found.texts:
            yield round(text.time * 1e9), text.name, {text.axis: text.step, "text": text.text[:_LONGEST_TEXT]}


def _thread(span: SpanRow) -> str:
    attributes = span["attributes"]
    return str(attributes.get("thread.name") or attributes.get("thread.id") or "")


def _notes(span: SpanRow) -> Mapping[str, Any]:
    notes = {} if span["step"] is None else {span["axis"]: span["step"]}
    notes |= span["attributes"]
    if span["status"] != "unset":
        notes["status"] = span["status"]
    return notes


def _rows(table: Table) -> Iterator[dict[str, Any]]:
    for cells in table.rows:
        row = {name: cell for name, cell in zip(table.columns, cells, strict=False) if cell is not None}
        if isinstance(row.get("since"), int):
            yield row


def _sentence(row: Mapping[str, Any]) -> str:
    """Return what is written at a finding.

    Examples:
        >>> _sentence({"kind": "slow", "rank": 2, "phase": "forward"}), _sentence({"kind": "silent", "rank": 0})
        ('rank 2 slow in forward', 'rank 0 silent')
        >>> _sentence({"kind": "pause", "place": "nobody", "phase": "checkpoint"})
        'pause in checkpoint'
        >>> _sentence({"kind": "stage", "place": "stage 3"})
        'stage 3'
        >>> _sentence({"kind": "load", "place": "rank 2", "given": 1.4, "amount": "tokens"})
        'rank 2: 1.4 × tokens'
    """
    if row.get("kind") == "load":
        return f"{row.get('place')}: {row.get('given')} × {row.get('amount')}"
    who = f"rank {row['rank']}" if "rank" in row else str(row.get("place", ""))
    kind = str(row.get("kind", ""))
    who = "" if kind == "pause" and who == "nobody" else who
    what = "" if who.startswith(kind) else kind
    where = f"in {row['phase']}" if row.get("phase") else ""
    return " ".join(part for part in (who, what, where) if part)
