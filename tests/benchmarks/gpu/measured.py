"""The part `gpu` of the harness: each program in a process of its own, with a service beside it as users have it."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.benchmarks.child import answer_of
from tests.benchmarks.figures import Figure, Found, absent, middle, ratio
from tests.benchmarks.gpu.calls import calls
from tests.benchmarks.gpu.compiled import compiled
from tests.benchmarks.gpu.inspection import inspection
from tests.benchmarks.gpu.launches import launches
from tests.benchmarks.gpu.shapes import SIZES, GpuSize
from tests.benchmarks.gpu.steps import steps
from tests.benchmarks.sizes import Size
from tests.benchmarks.training_loop import difference, slowdown
from tests.e2e.jobs import services_of, until

__all__ = ["measure", "measured_on"]

Figures = dict[str, Figure]
UNSEEN = "the profiler saw no device"


def measure(size: Size) -> Found:
    """Measure on the first GPU."""
    return measured_on("cuda", SIZES[size.name])


def measured_on(device: str, size: GpuSize) -> Found:
    """Measure on a device."""
    figures = of_calls(device, size) | of_launches(device, size) | of_compiled(device)
    figures |= of_steps(device, size) | of_inspection(device, size)
    return Found(figures)


def of_calls(device: str, size: GpuSize) -> Figures:
    found = answer(calls, device=device, shape=asdict(size.small), steps=size.calls)
    figures = {name: middle(taken, "µs") for name, taken in found.items()}
    figures["items_50"] = middle(found["items_50"], "µs", better="neither")
    return {**figures, "log_50.ratio": ratio(found["log_50"], found["items_50"])}


def of_launches(device: str, size: GpuSize) -> Figures:
    found = answer(launches, device=device, shape=asdict(size.small), repeated=size.repeated)
    counted = ("step.launches", "waits.caller", "waits.others", "log_50.launches", "norms.launches")
    is_seen = found["step.launches"] > 0
    figures = {name: Figure(float(found[name]), "1") if is_seen else absent("1", UNSEEN) for name in counted}
    for name, better in (("norms.device", "less"), ("norms.floor", "neither")):
        figures[name] = Figure(found[name], "µs", better=better)  # type: ignore[arg-type]
    times = found["norms.device"] / found["norms.floor"] if found["norms.floor"] else None
    figures["norms.device.ratio"] = Figure(times, "1") if times else absent("1", UNSEEN)
    return figures


def of_compiled(device: str) -> Figures:
    found = answer(compiled, device=device, backend="inductor" if device == "cuda" else "eager")
    return {f"compiled.{name}": Figure(float(count), "1") for name, count in found.items()}


def of_steps(device: str, size: GpuSize) -> Figures:
    wanted = (
        ("scalars_30", "scalars_30", size.small, size.pairs),
        ("everything.small", "everything", size.small, size.pairs),
        ("everything.large", "everything", size.large, size.large_pairs),
    )
    figures: Figures = {}
    for name, what, shape, pairs in wanted:
        found = answer(steps, device=device, shape=asdict(shape), what=what, pairs=pairs)
        figures |= of_turns(name, found)
        figures[f"{name}.calls"] = middle([seconds * 1e6 for seconds in found["calls"]], "µs")
        figures[f"{name}.lost"] = Figure(float(found["lost"]), "1", note="values that are not in the run, or not right")
    return figures


def of_inspection(device: str, size: GpuSize) -> Figures:
    figures: Figures = {}
    each, seldom = size.inspected_pairs
    for name, freq, pairs in (("each", 1, each), ("seldom", size.seldom, seldom)):
        found = answer(inspection, device=device, inspected=size.inspected, freq=freq, pairs=pairs)
        figures |= of_turns(f"inspector.{name}", found)
        figures[f"inspector.{name}.launches"] = Figure(float(found["launches"]), "1")
    return figures


def of_turns(name: str, found: Mapping[str, Sequence[float]]) -> Figures:
    """Return the slowdown of steps that took turns, their difference, and how long a bare one takes."""
    return {
        f"{name}.slowdown": slowdown(found["on"], found["off"]),
        f"{name}.difference": difference(found["on"], found["off"]),
        f"{name}.step": Figure(statistics.median(found["off"]) * 1e3, "ms", better="neither"),
    }


def answer(program: Callable[..., Any], **arguments: object) -> Any:
    """Run a program with a service and exporters of its own."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder:
        env = {
            "OTEL_ML_DIR": folder,
            "OTEL_ML_EXPORTERS": "jsonl,tensorboard",
            "OTEL_ML_CONSOLE": "off",
            "OTEL_ML_CAPTURE": "off",
        }
        found = answer_of(program, env=env, **arguments)
        until(lambda: not services_of(OTEL_ML_DIR=folder))
    return found
