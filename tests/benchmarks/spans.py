"""What a span costs the service behind HTTP and its journal: CPU time of decoding it, of the engine, and of both files.

`python -m tests.benchmarks.spans` says it of timers as workers send them, with the compiled part and in Python, in
turns. It measures CPU time, so that other programs on the machine matter little; the best of several turns counts.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from otel_ml_exporters import span_lines
from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.records import RunInfo
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.process_limits import keep_freed_memory
from otel_ml_service.receiver import span_fast_path
from otel_ml_service.receiver.decode import Decoder
from otel_ml_service.storage.outbox import Commit, Outbox
from tests.benchmarks.sources import Spans

__all__ = ["requests", "turn"]

WRITERS, ROUNDS, PER_REQUEST, TIMERS = 64, 6, 20, 20
TURNS = 7
REQUESTS = 32
"""In a commit: of so many spans that is a tenth of a second."""

STAGES = ("decoding", "engine", "outbox", "jsonl")


def requests() -> Sequence[bytes]:
    """Return what is sent."""
    source = Spans("bench", WRITERS, range(WRITERS), spans=TIMERS, per_request=PER_REQUEST)
    return [body for number in range(ROUNDS) for rank in range(WRITERS) for _, body in source.requests(number, rank)]


def turn(bodies: Sequence[bytes], *, compiled: bool) -> list[float]:
    """Return µs a span of each stage."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder, ExitStack() as patched:
        if not compiled:
            patched.enter_context(mock.patch.object(span_fast_path, "native", None))
            patched.enter_context(mock.patch.object(span_lines, "_written", span_lines._written_in_python))
        taken = staged(bodies, Path(folder))
    return [seconds / len(bodies) / PER_REQUEST / TIMERS * 1e6 for seconds in taken]


def staged(bodies: Sequence[bytes], folder: Path) -> list[float]:
    """Return the seconds of CPU that each stage took."""
    decoder, engine, box, exporter = Decoder(), Engine("bench"), Outbox(folder / "run.db"), JsonlExporter()
    exporter.start(RunInfo("bench", "bench", "bench", folder, 0.0))
    taken = [0.0] * len(STAGES)
    for begin in range(0, len(bodies), REQUESTS):
        marks = [time.process_time()]
        decoded = [decoder.protobuf("traces", body).observations["bench"] for body in bodies[begin : begin + REQUESTS]]
        marks.append(time.process_time())
        for observation in (one for found in decoded for one in found):
            engine.observe(observation, float(begin))
        engine.advance(float(begin))
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
    """Print a line for each way."""
    keep_freed_memory()
    bodies = requests()
    turns: dict[bool, list[list[float]]] = {True: [], False: []}
    for number in range(-1, TURNS):
        for compiled, found in turns.items():
            gc.collect()
            answer = turn(bodies, compiled=compiled)
            if number >= 0:
                found.append(answer)
    for compiled, found in turns.items():
        best = map(min, zip(*found, strict=True))
        stages = ", ".join(f"{name} {taken:.3f}" for name, taken in zip(STAGES, best, strict=True))
        print(
            f"{'compiled' if compiled else 'in Python':<9} {min(map(sum, found)):.2f} µs a span: {stages}", flush=True
        )


if __name__ == "__main__":
    main()
