"""Cost against what grows: each curve near-linear, or the page says why.

Those of the service are its CPU time a point, from OTLP to TensorBoard and JSONL, whatever it waits for meanwhile; each
point of a curve is a run of its own.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.benchmarks.child import answer_of
from tests.benchmarks.engine_memory import open_step_bytes
from tests.benchmarks.figures import Curve, Figure, Found
from tests.benchmarks.sizes import Size
from tests.benchmarks.under_load import Load, served, service
from tests.collector.pipeline import Service

__all__ = ["measure"]

RANKS, METRICS = 64, 100
COST = "µs of CPU a point"
HELD = "B a rank and open step"
HELD_NOTE = "What decoder and engine hold of a step until its last rank has sent it."
OPEN_STEPS = 10


def measure(size: Size) -> Found:
    """Measure every curve."""
    with service() as one:
        at = Axis(one, size.curve_s)
        curves = {
            "ranks": at.curve("ranks", [(ranks, ranks, {}) for ranks in size.ranks]),
            "metrics": at.curve("metrics a step", [(count, RANKS, {"metrics": count}) for count in size.metrics]),
            "per_request": at.lines(
                "steps a request",
                {
                    f"{ranks:,} ranks": [(steps, ranks, {"per_request": steps}) for steps in size.per_request]
                    for ranks in size.writers
                },
            ),
            "open_steps": at.curve("steps that wait for a rank", [(n, RANKS, {"behind": n}) for n in size.open_steps]),
            "late": at.curve("percent of ranks that record late", [(p, RANKS, {"late": p}) for p in size.late]),
            "attributes": at.curve("attributes a point", [(n, RANKS, {"attributes": n}) for n in size.attributes]),
            "reductions": at.lines("reduction", {name: [(0, RANKS, options_of(name))] for name in size.reductions}),
        }
    worker = answer_of(worker_step, metrics=list(size.metrics))
    curves["worker"] = Curve("The worker against metrics a step", "metrics a step", "µs a step", worker)
    held = answer_of(open_step_bytes, metrics=list(size.metrics), ranks=RANKS, steps=OPEN_STEPS)
    lines = {f"{RANKS} ranks": held}
    curves["held"] = Curve("Memory of the service against metrics a step", "metrics a step", HELD, lines, HELD_NOTE)
    return Found({f"{name}.last": last(curve) for name, curve in curves.items()}, curves)


def options_of(reduction: str) -> dict[str, Any]:
    """Return the options of a load whose metrics have this reduction; `weighted` is a mean with weights."""
    return {"reduction": "mean", "weight": 2.0} if reduction == "weighted" else {"reduction": reduction}


Point = tuple[float, int, Mapping[str, Any]]
"""x, ranks, and what differs from steps of 100 metrics, one a request."""


class Axis:
    """Loads on one service, each a run of its own."""

    def __init__(self, on: Service, seconds: float) -> None:
        self._on = on
        self._seconds = seconds
        self._number = itertools.count()

    def curve(self, x: str, points: Sequence[Point]) -> Curve:
        """Return a curve of one line."""
        return self.lines(x, {f"{METRICS} metrics a step" if x == "ranks" else f"{RANKS} ranks": points})

    def lines(self, x: str, lines: Mapping[str, Sequence[Point]]) -> Curve:
        """Return a curve of several lines."""
        found = {label: [(point[0], self._cost(*point[1:])) for point in points] for label, points in lines.items()}
        return Curve(f"The service against {x}", x, COST, found)

    def _cost(self, ranks: int, options: Mapping[str, Any]) -> float:
        name = f"bench-{next(self._number)}"
        load = Load("own", ranks, self._seconds, {"metrics": METRICS, **options}, experiment=name, connections=64)
        return served(load, self._on).cpu_us


def last(curve: Curve) -> Figure:
    """Return the last point of a curve's first line, so that runs can be compared."""
    x, y = next(iter(curve.lines.values()))[-1]
    return Figure(y, curve.y.partition(" a ")[0], note=f"{x:,g} {curve.x}")


def worker_step(metrics: Sequence[int]) -> dict[str, list[tuple[float, float]]]:
    """Return what a step costs the training thread and the background thread, in this process."""
    from otel_ml._internal.messages.recorder import RecordSettings, recorder
    from otel_ml._internal.record.log import log
    from otel_ml._internal.steps.step import set_step

    recorder.configure(RecordSettings())
    recorder.enabled = True
    number = itertools.count()
    lines: dict[str, list[tuple[float, float]]] = {"training thread": [], "background thread": []}
    for count in metrics:
        values = {f"metric_{index}": float(index) for index in range(count)}

        def step(values: Mapping[str, float] = values) -> None:
            set_step(next(number))
            log(values)

        rounds = max(5, 20_000 // count)
        taken = alternately(rounds, step, lambda: recorder.collect(time.time_ns() + 20_000_000))
        for line, seconds in zip(lines.values(), taken, strict=True):
            line.append((count, seconds * 1e6))
    return lines


def alternately(rounds: int, *calls: Callable[[], object]) -> list[float]:
    """Return the median seconds of each of some that take turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for side, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            taken[side].append(time.perf_counter() - begin)
    return [statistics.median(one) for one in taken]
