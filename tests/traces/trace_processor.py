"""Perfetto's own trace_processor, asked by SQL what it makes of a trace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.jobs import ROOT
from tests.perfetto_trace import Slice, Trace

__all__ = ["answers", "processed"]

PROGRAM = Path(__file__).with_suffix(".mjs")

# Not by `severity`: packets that it skips are `info`, too.
WRONG = """
    select name, value from stats where value and name not glob '*_duration_ns' and name != 'clock_sync_cache_miss'
"""
TRACKS = "select id, name, parent_id from track"
NOTES = """
    select arg_set_id, substr(key, 7), value_type, coalesce(string_value, int_value, real_value)
    from args where key glob 'debug.*'
"""
SLICES = "select id, track_id, name, ts, dur, arg_set_id, parent_id from slice order by id"
FLOWS = "select slice_out, slice_in from flow"
COUNTERS = "select track_id, ts, value from counter order by ts"


def answers(file: Path, *queries: str) -> list[list[list[Any]]]:
    """Return the rows of each query."""
    assert (ROOT / ".cache" / "trace-processor").is_dir(), "There is no trace_processor. Run: .ci/trace-processor"
    done = subprocess.run(["node", PROGRAM, file, *queries], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def processed(file: Path) -> Trace:
    """Return the trace as trace_processor has it; nothing in it may be wrong."""
    wrong, tracks, notes, slices, flows, counters = answers(file, WRONG, TRACKS, NOTES, SLICES, FLOWS, COUNTERS)
    assert not wrong, f"trace_processor says {wrong}"
    paths = paths_of({number: (name, parent) for number, name, parent in tracks})
    of_slices: dict[int, dict[str, Any]] = {}
    for notes_id, key, kind, value in notes:
        of_slices.setdefault(notes_id, {})[key] = bool(value) if kind == "bool" else value
    every: dict[int, Slice] = {}
    trace = Trace()
    for number, track, name, begin_ns, duration_ns, notes_id, parent in slices:
        told = of_slices[notes_id]
        inside = every[parent].notes["span_id"] if parent is not None else None
        every[number] = Slice(paths[track], name, begin_ns, told, begin_ns + duration_ns, inside)
        (trace.slices if "span_id" in told else trace.marks).append(every[number])
    trace.flows = {(every[cause].notes["span_id"], every[effect].notes["span_id"]) for cause, effect in flows}
    for track, time_ns, value in counters:
        trace.counters.setdefault(paths[track], []).append((time_ns, value))
    return trace


def paths_of(tracks: Mapping[int, tuple[str, int | None]]) -> dict[int, tuple[str, ...]]:
    def path(number: int | None) -> Sequence[str]:
        if number is None:
            return ()
        name, parent = tracks[number]
        return (*path(parent), name)

    return {number: tuple(path(number)) for number in tracks}
