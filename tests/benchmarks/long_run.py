"""A run of many steps on disk, as the service leaves it, and what it costs to read it.

`python -m tests.benchmarks.long_run FOLDER --steps 200000` writes one with the service's own outbox and exporter, and
says what the commands take for it that read it.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path

from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.records import Params, Record, RunInfo, RunStatus, SpanBatch, StepRecord, Summary
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["write_long_run"]

STEP_S = 0.05
BEGAN = 1_700_000_000.0
_BATCH = 500
_PHASES = (("load", 0.0, 0.1), ("forward", 0.1, 0.4), ("backward", 0.4, 0.9))


def write_long_run(base: Path, steps: int, *, run_id: str = "long") -> RunFolder:
    """Write a run of `steps` steps: four metrics, three timers with a span each, finished."""
    run = RunFolder(base / "default" / run_id)
    exporter = JsonlExporter()
    exporter.start(RunInfo(id=run_id, experiment="default", name=run_id, dir=run.path, started_at=BEGAN))
    with closing(Outbox(run.database)) as outbox:
        records = _records(steps)
        while together := list(islice(records, _BATCH)):
            outbox.commit(Commit(records=together))
            exporter.export(together)
    exporter.shutdown(5.0, None)
    return run


def _records(steps: int) -> Iterator[Record]:
    seq = count(1)
    yield Params(next(seq), BEGAN, {"lr": 0.1, "steps": steps})
    for first in range(0, steps, _BATCH):
        some = range(first, min(first + _BATCH, steps))
        for step in some:
            yield StepRecord(next(seq), "trainer", "step", step, 0, BEGAN + step * STEP_S, _values(step))
        yield SpanBatch(next(seq), SpanLines([line for step in some for line in _spans(step)]))
    yield Summary(next(seq), BEGAN + steps * STEP_S, {"otel_ml/recorded": 7.0 * steps})
    yield RunStatus(next(seq), BEGAN + steps * STEP_S, "finished")


def _values(step: int) -> dict[str, float]:
    wave = math.sin(step / 50)
    measured = {"loss": 2 / (1 + step / 1000) + wave / 100, "accuracy": 0.5 + wave / 10, "lr": 0.1 / (1 + step)}
    timers = {f"time/{name}": STEP_S * (end - begin) * (1 + wave / 50) for name, begin, end in _PHASES}
    return {**measured, "grad_norm": 1 + wave / 3, **timers}


def _spans(step: int) -> Iterator[str]:
    began = int((BEGAN + step * STEP_S) * 1e9)
    for index, (name, begin, end) in enumerate(_PHASES):
        yield json.dumps(
            {
                "trace_id": f"{step:032x}",
                "span_id": f"{step * 4 + index + 1:016x}",
                "parent_id": None,
                "name": name,
                "start_ns": began + int(STEP_S * begin * 1e9),
                "end_ns": began + int(STEP_S * end * 1e9),
                "role": "trainer",
                "rank": 0,
                "axis": "step",
                "step": step,
                "attributes": {},
                "status": "unset",
            },
            separators=(",", ":"),
        )


_ASKED = (
    ("-m", "otel_ml_service", "report"),
    ("-m", "otel_ml_service", "show"),
    ("-c", "import otel_ml, sys; otel_ml.read(sys.argv[1])"),
    ("-c", "import otel_ml, sys; otel_ml.read(sys.argv[1], 'loss')"),
)

if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--steps", type=int, default=200_000)
    chosen = options.parse_args()
    path = write_long_run(chosen.folder, chosen.steps).path
    for asked in _ASKED:
        began = time.perf_counter()
        subprocess.run([sys.executable, *asked, str(path)], stdout=subprocess.DEVNULL, check=True)
        print(f"{time.perf_counter() - began:6.2f} s  {' '.join(asked)}")
