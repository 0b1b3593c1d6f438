"""What a point or a span costs the service behind HTTP and its journal: CPU time of each stage on its way to the files.

`python -m tests.benchmarks.stages` says it of what workers send, points and timers' spans, with the compiled part and
in Python, in turns. It measures CPU time, so that other programs on the machine matter little; the best of several
turns counts.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from otel_ml_exporters import span_lines
from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.records import RunInfo
from otel_ml_service.aggregation import points
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.process_limits import keep_freed_memory
from otel_ml_service.receiver import (
    decode,
    fast_path,
    known_forms,
    message_templates,
    request_parts,
    scope_cache,
    span_fast_path,
)
from otel_ml_service.receiver.decode import Decoder, Signal
from otel_ml_service.storage import line_deltas
from otel_ml_service.storage.outbox import Commit, Outbox
from tests.benchmarks.sources import Own, Spans

__all__ = ["Load", "loads", "turn"]

WRITERS, ROUNDS, PER_REQUEST = 64, 6, 20
METRICS, TIMERS = 100, 20
TURNS = 7
REQUESTS = 32
"""In a commit: of so many requests that is a tenth of a second."""

STAGES = ("decoding", "observing", "closing", "state", "outbox", "jsonl")
"""Observing, closing of steps and the state for the next commit are the engine's."""

TWINS: Sequence[tuple[Any, str, object]] = (
    (decode, "parts", request_parts.parts_in_python),
    (fast_path, "known", fast_path.known_in_python),
    (fast_path, "find_form", known_forms.find_form_in_python),
    (message_templates, "find_form", known_forms.find_form_in_python),
    (scope_cache, "find_form", known_forms.find_form_in_python),
    (points, "gathered", points.gathered_in_python),
    (points, "newest", points.newest_in_python),
    (span_fast_path, "native", None),
    (span_lines, "_written", span_lines._written_in_python),
    (line_deltas, "native", None),
)
"""Module, name of a compiled function in it, and what has its place."""


@dataclass(frozen=True)
class Load:
    """What is sent: requests of one signal, with so many items each."""

    signal: Signal
    bodies: Sequence[bytes]
    items: int


def _requests(source: Own | Spans) -> Sequence[bytes]:
    return [body for number in range(ROUNDS) for rank in range(WRITERS) for _, body in source.requests(number, rank)]


def loads() -> Mapping[str, Load]:
    """Return each kind of load by what it consists of."""
    about = ("bench", WRITERS, range(WRITERS))
    own = Own(*about, metrics=METRICS, per_request=PER_REQUEST)
    timers = Spans(*about, spans=TIMERS, per_request=PER_REQUEST)
    return {
        "point": Load("metrics", _requests(own), METRICS * PER_REQUEST),
        "span": Load("traces", _requests(timers), TIMERS * PER_REQUEST),
    }


def turn(load: Load, *, compiled: bool) -> list[float]:
    """Return µs an item of each stage."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder, ExitStack() as patched:
        for module, name, twin in () if compiled else TWINS:
            patched.enter_context(mock.patch.object(module, name, twin))
        taken = _staged(load, Path(folder))
    return [seconds / len(load.bodies) / load.items * 1e6 for seconds in taken]


def _staged(load: Load, folder: Path) -> list[float]:
    """Return the seconds of CPU that each stage took."""
    decoder, engine, box, exporter = Decoder(), Engine("bench"), Outbox(folder / "run.db"), JsonlExporter()
    exporter.start(RunInfo("bench", "bench", "bench", folder, 0.0))
    taken = [0.0] * len(STAGES)
    for begin in range(0, len(load.bodies), REQUESTS):
        some = load.bodies[begin : begin + REQUESTS]
        marks = [time.process_time()]
        decoded = [decoder.protobuf(load.signal, body).observations["bench"] for body in some]
        marks.append(time.process_time())
        for observation in (one for found in decoded for one in found):
            engine.observe(observation, float(begin))
        marks.append(time.process_time())
        engine.advance(float(begin))
        marks.append(time.process_time())
        outcome = engine.take()
        marks.append(time.process_time())
        box.commit(Commit(outcome.records, outcome.changes))
        marks.append(time.process_time())
        exporter.export(outcome.records)
        marks.append(time.process_time())
        for stage in range(len(STAGES)):
            taken[stage] += marks[stage + 1] - marks[stage]
    exporter.shutdown(1.0, None)
    box.close()
    return taken


def main() -> None:
    """Print a line for each load and way."""
    keep_freed_memory()
    for what, load in loads().items():
        turns: dict[bool, list[list[float]]] = {True: [], False: []}
        for number in range(-1, TURNS):
            for compiled, found in turns.items():
                gc.collect()
                answer = turn(load, compiled=compiled)
                if number >= 0:
                    found.append(answer)
        for compiled, found in turns.items():
            best = map(min, zip(*found, strict=True))
            stages = ", ".join(f"{name} {taken:.3f}" for name, taken in zip(STAGES, best, strict=True))
            way = "compiled" if compiled else "in Python"
            print(f"{way:<9} {min(map(sum, found)):.3f} µs a {what}: {stages}", flush=True)


if __name__ == "__main__":
    main()
