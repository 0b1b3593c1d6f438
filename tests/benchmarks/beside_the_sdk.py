"""The same work by otel_ml and by the OpenTelemetry SDK, in turns, in one process: what one costs beside the other.

A figure in µs is a property of the machine and its neighbours; the ratio of two that took turns is not.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.e2e.jobs import environment

CALLS, ROUNDS = 1_000, 60
METRICS, TIMERS, STEPS, STEP_S = 100, 20, 60, 0.05
TEN = {f"metric_{i}": float(i) for i in range(10)}
HUNDRED = {f"metric_{i}": float(i) for i in range(METRICS)}
ATTRIBUTES = {"step": 1, "axis": "step", "rank": 0}


class Case(NamedTuple):
    """Two statements that do the same."""

    ours: str
    theirs: str


CASES = {
    "record": Case("metric.record(0.5)", "histogram.record(0.5, ATTRIBUTES)"),
    "log of 10": Case("otel_ml.log(TEN)", "for name in TEN: histograms[name].record(TEN[name], ATTRIBUTES)"),
    "timed, with span": Case(
        "with otel_ml.timed('forward'): pass",
        "begin = perf_counter()\nwith tracer.start_as_current_span('x'): pass\n"
        "histogram.record(perf_counter() - begin, ATTRIBUTES)",
    ),
    "timed above the level": Case("with otel_ml.timed('detail', level=3): pass", "pass"),
}
WITHOUT_A_RUN = {
    "record, no run": Case("otel_ml.record('loss', 0.5)", "idle_histogram.record(0.5, ATTRIBUTES)"),
    "log of 10, no run": Case("otel_ml.log(TEN)", "for name in TEN: idle_histogram.record(TEN[name], ATTRIBUTES)"),
    "timed, no run": Case("with otel_ml.timed('forward'): pass", "with idle_tracer.start_as_current_span('x'): pass"),
}


def in_turns(cases: dict[str, Case], names: dict[str, Any], after: Callable[[], None]) -> dict[str, list[float]]:
    """Return the best µs of each side, by case."""
    found = {}
    for title, case in cases.items():
        sides = [timeit.Timer(statement, globals=names) for statement in case]
        best = [float("inf"), float("inf")]
        for _ in range(ROUNDS):
            for side, timer in enumerate(sides):
                best[side] = min(best[side], timer.timeit(CALLS) / CALLS * 1e6)
            after()
        found[title] = best
    return found


def cold_step(steps: Iterable[Callable[[int], None]]) -> list[list[float]]:
    """Return the sorted µs of whole steps, after a pause in which the caches were used by something else."""
    taken: list[list[float]] = [[] for _ in steps]
    trash = bytearray(32 * 2**20)
    for index in range(STEPS):
        for side, step in enumerate(steps):
            trash[:] = bytes(len(trash))
            time.sleep(STEP_S)
            begin = time.perf_counter()
            step(index)
            taken[side].append((time.perf_counter() - begin) * 1e6)
    return [sorted(times) for times in taken]


def measure(*, run: bool) -> None:
    """Measure in this process, and print JSON."""
    import opentelemetry.metrics
    import opentelemetry.trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    import otel_ml

    meter = MeterProvider([InMemoryMetricReader()]).get_meter("beside")
    tracer = TracerProvider().get_tracer("beside")
    names: dict[str, Any] = {
        "otel_ml": otel_ml,
        "perf_counter": time.perf_counter,
        "TEN": TEN,
        "ATTRIBUTES": ATTRIBUTES,
        "tracer": tracer,
        "histograms": {name: meter.create_histogram(name) for name in HUNDRED},
        "histogram": meter.create_histogram("one"),
        "idle_histogram": opentelemetry.metrics.NoOpMeter("idle").create_histogram("one"),
        "idle_tracer": opentelemetry.trace.NoOpTracer(),
    }
    if not run:
        print(json.dumps(in_turns(WITHOUT_A_RUN, names, lambda: None)))
        return
    otel_ml.init("bench")
    otel_ml.set_step(0)
    names["metric"] = otel_ml.get_meter().metric("one")
    found = in_turns(CASES, names, lambda: time.sleep(0.002))  # the background thread takes what was recorded

    def our_step(index: int) -> None:
        otel_ml.set_step(index)
        otel_ml.log(HUNDRED)
        for _ in range(TIMERS):
            with otel_ml.timed("phase"):
                pass

    def their_step(index: int) -> None:
        attributes = {**ATTRIBUTES, "step": index}
        for name, value in HUNDRED.items():
            names["histograms"][name].record(value, attributes)
        for _ in range(TIMERS):
            begin = time.perf_counter()
            with tracer.start_as_current_span("phase"):
                pass
            names["histogram"].record(time.perf_counter() - begin, attributes)

    ours, theirs = cold_step([our_step, their_step])
    title = f"a step of {METRICS} metrics and {TIMERS} timers, cold"
    found[f"{title}, p50"] = [statistics.median(ours), statistics.median(theirs)]
    found[f"{title}, p99"] = [ours[int(len(ours) * 0.99)], theirs[int(len(theirs) * 0.99)]]
    print(json.dumps(found))
    otel_ml.shutdown()


def measured(*, run: bool) -> dict[str, list[float]]:
    """Return what a fresh process measures."""
    program = f"from tests.benchmarks.beside_the_sdk import measure; measure(run={run})"
    with tempfile.TemporaryDirectory() as folder:
        # Every timer keeps its span here: what is over the budget would not be measured.
        options = {"OTEL_ML_CONSOLE": "off", "OTEL_ML_SPANS_PER_STEP": "1000000000", "OTEL_ML_CAPTURE": "off"}
        env = environment(OTEL_ML_DIR=folder, OTEL_ML_EXPORTERS="jsonl", **options) if run else environment()
        if not run:
            env = {name: value for name, value in env.items() if not name.startswith("OTEL_")}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the table."""
    print(f"| work | otel_ml, µs | OpenTelemetry SDK, µs | ratio |\n|---|---|---|---|  (best of {ROUNDS} × {CALLS})")
    for title, (ours, theirs) in {**measured(run=True), **measured(run=False)}.items():
        print(f"| {title} | {ours:.3f} | {theirs:.3f} | {ours / theirs:.2f} |", flush=True)
