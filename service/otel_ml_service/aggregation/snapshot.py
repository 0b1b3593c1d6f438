"""An engine's memory as small entries (key → bytes): a commit writes what changed, a start reads all (ADR 0001).

`run` · `said` · `findings` · `reductions` · `params` · `summaries` · `who/<n>` (a writer's resource) · `writer/<n>`
(where it stands) · `spans/<n>` · `track/<n>` · `lane/<n>` · `shape/<n>` · `stream/<digest>/<k>` ·
`recent/<generation>/<k>` · `moments/<generation>/<k>` · `training/<k>` · `unit/<n>` (what is known of it). What begins
with `disk/` is read when it is needed: `disk/points/<n>/<k>` (points of a window, written once), and what
`closed_steps.py` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from otel_ml_exporters.json_text import finite_json, plain_json
from otel_ml_service.aggregation.closed_steps import ClosedSteps
from otel_ml_service.aggregation.cumulative_streams import CumulativeStreams
from otel_ml_service.aggregation.intervals import IntervalSet
from otel_ml_service.aggregation.observation import SeriesKey
from otel_ml_service.aggregation.older_state import in_this_form
from otel_ml_service.aggregation.parameters import Owner, Parameters
from otel_ml_service.aggregation.run_end import RunEnd
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.spans import SpanIntake
from otel_ml_service.aggregation.state_entries import (
    attempt_entry,
    pairs,
    reductions_entry,
    restore_attempt,
    restore_reductions,
    restore_stream,
    restore_window,
    restore_writer,
    stream_entry,
    who_entry,
    window_entry,
    writer_entry,
)
from otel_ml_service.aggregation.step_window import StepWindow
from otel_ml_service.aggregation.stream_table import decoded
from otel_ml_service.aggregation.summaries import Summaries
from otel_ml_service.aggregation.window_chunks import decode_pieces, encode_windows, points_key
from otel_ml_service.versions import RUN

__all__ = ["Snapshot"]

_COMPARED = frozenset({"track", "lane", "findings", "reductions", "run"})
"""Entries that are written where their bytes differ from the last ones."""


class Snapshot:
    """Writes and reads the state of one engine."""

    def __init__(
        self,
        run: RunState,
        ending: RunEnd,
        closed: ClosedSteps,
        streams: CumulativeStreams,
        parameters: Parameters,
        summaries: Summaries,
        spans: SpanIntake,
    ) -> None:
        self._run = run
        self._ending = ending
        self._closed = closed
        self._streams = streams
        self._parameters = parameters
        self._summaries = summaries
        self._spans = spans
        self._written: dict[str, bytes] = {}
        self._put_into_form: dict[str, bytes | None] = {}
        self._chunks: dict[str, dict[int, int]] = {"recent": {}, "moments": {}}

    def changes(self) -> dict[str, bytes | None]:
        """Return the entries that changed since the last call."""
        run = self._run
        out, self._put_into_form = self._put_into_form, {}
        # Points before headers: the queue on the disk says how many bytes they took. Shapes after both, for what left
        # memory with the last commit no longer holds any.
        out.update(self._windows())
        self._closed.store()
        out.update((f"who/{number}", plain_json(who_entry(run.writers[number]))) for number in run.writers.described)
        out.update((f"writer/{n}", finite_json(writer_entry(run.writers[n]))) for n in run.writers.dirty)
        run.writers.described.clear()
        run.writers.dirty.clear()
        idle = run.shapes.tidy()
        out.update((f"shape/{shape.number}", plain_json(shape.series)) for shape in run.shapes.take_fresh())
        out.update((f"shape/{shape.number}", None) for shape in idle)
        self._closed.forget_shapes(idle)
        out.update((f"spans/{n}", finite_json(self._spans.seen[n].pairs())) for n in self._spans.changed)
        self._spans.changed.clear()
        out.update(self._streams.changes())
        out.update(self._recent())
        out.update((f"training/{block}", data) for block, data in run.training.changes())
        if self._parameters.changed:
            self._parameters.note_committed()
            out["params"] = plain_json([[list(path), *owner] for path, owner in self._parameters.owners.items()])
        if self._summaries.changed:
            self._summaries.note_committed()
            out["summaries"] = plain_json(self._summaries.state())
        if run.output.fresh_said:
            run.output.note_committed()
            out["said"] = plain_json(list(run.output.said))
        out.update(self._compared())
        # Last: what is written above has put entries there, too.
        out.update(run.disk.hand_out())
        return out

    def _compared(self) -> Iterator[tuple[str, bytes]]:
        """Entries that are few: written where their bytes differ from the last ones."""
        for number, stream in enumerate(self._run.step_streams.streams.values()):
            yield from self._if_new(f"track/{number}", stream_entry(stream))
        for attempt in self._run.step_streams:
            yield from self._if_new(f"lane/{attempt.number}", attempt_entry(attempt))
        if found := self._run.stragglers.state():
            yield from self._if_new("findings", found)
        if any(known.changed for known in self._run.step_streams.reductions.values()):
            yield from self._if_new("reductions", reductions_entry(self._run))
        yield from self._if_new("run", self._run_entry())

    def _if_new(self, key: str, value: object) -> Iterator[tuple[str, bytes]]:
        data = plain_json(value)
        if self._written.get(key) != data:
            self._written[key] = data
            yield key, data

    def _run_entry(self) -> dict[str, object]:
        run = self._run
        return {
            "version": RUN,
            "seq": run.output.seq,
            "clock": run.clock.state(),
            "now": run.now,
            "attempts": run.attempts.state(),
            "training": run.training.role,
            "recent": run.recent.state(),
            "moments": run.recent_points.state(),
            "started_at": run.started_at,
            "origin_ns": run.origin_ns,
            "next_unit": run.next_window,
            "next_shape": run.shapes.next,
            "closed": self._closed.state(),
            "state": self._ending.state,
            "last_goodbye": self._ending.last_shutdown_message,
            "told": sorted(self._ending.told),
            "spans": [self._spans.delivered, self._spans.duplicates],
            "events": run.events,
            "left_out": run.left_out,
            "account": [run.superseded, run.too_late, run.is_missing_said, run.writers.begins_anew],
        }

    def _windows(self) -> Iterator[tuple[str, bytes | None]]:
        run = self._run
        for number, chunks in run.gone_windows.items():
            yield f"unit/{number}", None
            yield from ((points_key(number, chunk), None) for chunk in range(chunks))
        run.gone_windows.clear()
        leaving = self._closed.leaving
        yield from self._points([*(window for _, window in run.changed_windows.values()), *leaving])
        for number, (attempt, window) in run.changed_windows.items():
            yield f"unit/{number}", plain_json(window_entry(attempt, window))
        yield from ((f"unit/{window.number}", None) for window in leaving)
        run.changed_windows.clear()

    @staticmethod
    def _points(windows: Sequence[StepWindow]) -> Iterator[tuple[str, bytes | None]]:
        """Write the points that are not yet stored."""
        for window in windows:
            if window.rewritten:
                yield from ((points_key(window.number, chunk), None) for chunk in range(window.unwrite()))
        fresh = [window for window in windows if window.stored < len(window.pieces)]
        for window, data in zip(
            fresh, encode_windows([window.pieces[window.stored :] for window in fresh]), strict=True
        ):
            yield points_key(window.number, window.chunks), data
            window.note_stored(len(data))

    def _recent(self) -> Iterator[tuple[str, bytes | None]]:
        recent, points = self._run.recent, self._run.recent_points
        yield from self._added("recent", recent.generation, recent.take_fresh())
        yield from self._added("moments", points.generation, points.take_fresh())

    def _added(self, kind: str, newest: int, fresh: list[tuple[int, bytes]]) -> Iterator[tuple[str, bytes | None]]:
        """Write what was added to generations, and remove those before the last one."""
        chunks = self._chunks[kind]
        for generation, data in fresh:
            chunk = chunks.get(generation, 0)
            yield f"{kind}/{generation}/{chunk}", data
            chunks[generation] = chunk + 1
        # Two generations are remembered, and so many are kept.
        for old in [generation for generation in chunks if generation < newest - 1]:
            yield from ((f"{kind}/{old}/{chunk}", None) for chunk in range(chunks.pop(old)))

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Read entries that an earlier engine wrote; those of a former version are all written again."""
        if "run" not in state:
            return
        stored, state = state, in_this_form(state)
        self._put_into_form = _difference(stored, state)
        # Each kind refers to those that are read before it: points to shapes, windows to attempts and writers.
        entries: dict[str, dict[str, bytes]] = {}
        for key in sorted(state, key=_natural):
            kind, _, rest = key.partition("/")
            entries.setdefault(kind, {})[rest] = state[key]
        for number, data in entries.get("writer", {}).items():
            restore_writer(self._run, json.loads(entries["who"][number]), json.loads(data))
        # `add` took each of them for new, and all of them are stored.
        self._run.writers.described.clear()
        for number, data in entries.get("shape", {}).items():
            series = tuple(SeriesKey(name, pairs(attributes), kind) for name, attributes, kind in json.loads(data))
            self._run.shapes.restore(int(number), series)
        restore_reductions(self._run, json.loads(entries.get("reductions", {}).get("", b"[]")))
        for data in entries.get("track", {}).values():
            restore_stream(self._run, json.loads(data))
        for data in entries.get("lane", {}).values():
            restore_attempt(self._run, json.loads(data))
        # Points are on the disk; of a state of a former version they are in what was converted, and not written yet.
        self._restore_windows(entries.get("unit", {}), lambda key: state.get(key) or self._run.disk.get(key))
        self._restore_rest(entries)
        run = json.loads(state["run"])
        self._restore_run(run)
        self._run.training.restore(run["training"], {int(k): data for k, data in entries.get("training", {}).items()})
        digests = self._read_added("recent", entries)
        joined = {generation: b"".join(chunks) for generation, chunks in digests.items()}
        self._run.recent.restore(run["recent"], joined)
        self._run.recent_points.restore(run["moments"], self._read_added("moments", entries))
        self._written = {key: state[key] for key in state if key.partition("/")[0] in _COMPARED}

    def _read_added(self, kind: str, entries: Mapping[str, Mapping[str, bytes]]) -> dict[int, list[bytes]]:
        """Return what was added to each generation."""
        found: dict[int, list[bytes]] = {}
        for key, data in entries.get(kind, {}).items():
            found.setdefault(int(key.partition("/")[0]), []).append(data)
        self._chunks[kind] = {generation: len(chunks) for generation, chunks in found.items()}
        return found

    def _restore_windows(self, entries: Mapping[str, bytes], points: Callable[[str], bytes | None]) -> None:
        run = self._run
        for number, data in entries.items():
            window = restore_window(run, int(number), json.loads(data))
            stored_bytes = 0
            for chunk in range(window.chunks):
                stored = points(points_key(window.number, chunk)) or b""
                stored_bytes += len(stored)
                for piece in decode_pieces(stored, run.shapes.known.__getitem__, lambda n: run.writers[n].source):
                    window.add(piece)
            window.note_all_stored(stored_bytes)

    def _restore_rest(self, entries: Mapping[str, Mapping[str, bytes]]) -> None:
        for number, data in entries.get("spans", {}).items():
            self._spans.seen[int(number)] = IntervalSet(json.loads(data))
        for data in entries.get("stream", {}).values():
            self._streams.restore(*decoded(data))
        owners = json.loads(entries.get("params", {}).get("", b"[]"))
        self._parameters.restore({tuple(path): Owner(*owner) for path, *owner in owners})
        self._summaries.restore(json.loads(entries.get("summaries", {}).get("", b"[]")))
        self._run.stragglers.restore(json.loads(entries.get("findings", {}).get("", b"{}")))
        self._run.output.restore_said(json.loads(entries.get("said", {}).get("", b"[]")))

    def _restore_run(self, entry: dict[str, Any]) -> None:
        run = self._run
        run.output.number_after(entry["seq"])
        run.clock.restore(entry["clock"])
        run.restore(entry)
        run.shapes.number_from(entry["next_shape"])
        self._closed.restore(entry["closed"])
        self._ending.restore(entry["state"], entry["last_goodbye"], entry["told"])
        self._spans.restore(*entry["spans"])


def _difference(stored: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Return what is to be written where `stored` is, so that it becomes `wanted`."""
    keys = stored.keys() | wanted.keys()
    return {key: wanted.get(key) for key in keys if stored.get(key) != wanted.get(key)}


def _natural(key: str) -> list[tuple[int, int, str]]:
    """Sort `unit/2/10` after `unit/2/9`."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in key.split("/")]
