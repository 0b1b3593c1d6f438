"""A run of many steps on disk, as the service leaves it, and what it costs to read it.

`python -m tests.benchmarks --only long_run` measures runs of 1,000 to 1,000,000 steps.
`python -m tests.benchmarks.long_run FOLDER --steps 200000` writes one with the service's own outbox and exporter, keeps
it, and says what the commands take for it that read it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import Literal

from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.records import Params, Record, RunInfo, RunStatus, SpanBatch, StepRecord, Summary
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.benchmarks.child import bare_environment
from tests.benchmarks.command_cost import Cost, cost_of
from tests.benchmarks.figures import Curve, Figure, Found
from tests.benchmarks.sizes import Size

__all__ = ["measure", "write_long_run"]

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


ASKED: Mapping[str, tuple[str, Sequence[str]]] = {
    "report": ("otel-ml report", ("-m", "otel_ml_service", "report")),
    "show": ("otel-ml show", ("-m", "otel_ml_service", "show")),
    "read": ("read(run)", ("-c", "import otel_ml, sys; otel_ml.read(sys.argv[1])")),
    "series": ("read(run, 'loss')", ("-c", "import otel_ml, sys; otel_ml.read(sys.argv[1], 'loss')")),
}
"""Name of a figure → how the page calls it, and what it is. Each is a process of its own: its start counts, too."""


def measure(size: Size) -> Found:
    """Measure what a person waits for who looks at a run, against its length. The files were written just before."""
    costs = {steps: costs_of(steps) for steps in size.run_steps}
    figures = {
        f"{name}.{steps}": Figure(found[name].seconds, "s", note=f"at most {found[name].memory:.0f} MB")
        for name in ASKED
        for steps, found in costs.items()
    }
    return Found(figures, {"seconds": curve("s", costs), "memory": curve("MB", costs)})


def costs_of(steps: int) -> Mapping[str, Cost]:
    """Return what each command costs of a run of so many steps."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder:
        return asked(write_long_run(Path(folder), steps).path)


def asked(run: Path) -> Mapping[str, Cost]:
    return {name: cost_of([sys.executable, *command, run], bare_environment()) for name, (_, command) in ASKED.items()}


def curve(unit: Literal["s", "MB"], costs: Mapping[int, Mapping[str, Cost]]) -> Curve:
    lines = {
        label: [(steps, found[name].seconds if unit == "s" else found[name].memory) for steps, found in costs.items()]
        for name, (label, _) in ASKED.items()
    }
    what = "Time" if unit == "s" else "Memory"
    return Curve(f"{what} to look at a run of one rank", "steps of 7 values and 3 spans", unit, lines)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--steps", type=int, default=200_000)
    chosen = options.parse_args()
    for what, taken in asked(write_long_run(chosen.folder, chosen.steps).path).items():
        print(f"{taken.seconds:6.2f} s  {taken.memory:6.0f} MB  {ASKED[what][0]}")
