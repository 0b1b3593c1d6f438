"""What a call costs on the training thread, beside the OpenTelemetry SDK: hot, and with cold caches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Figure, Found, middle, ratio
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import cold_call, hot_calls, in_turns

__all__ = ["TEN", "measure"]

TEN = {f"metric_{i}": float(i) for i in range(10)}
ATTRIBUTES = {"step": 1, "axis": "step", "rank": 0}


class Case(NamedTuple):
    """Two statements that do the same."""

    ours: str
    theirs: str


IN_A_RUN = {
    "record": Case("metric.record(0.5)", "histogram.record(0.5, ATTRIBUTES)"),
    "log_10": Case("otel_ml.log(TEN)", "for name in TEN: histograms[name].record(TEN[name], ATTRIBUTES)"),
    "timed": Case("with otel_ml.timed('forward'): pass", "with tracer.start_as_current_span('forward'): pass"),
    "level_off": Case(
        "with otel_ml.timed('detail', level=3): pass", "with idle_tracer.start_as_current_span('x'): pass"
    ),
    "set_step": Case("otel_ml.set_step(next(STEP))", "{**ATTRIBUTES, 'step': next(STEP)}"),
}
"""An SDK knows no step: beside `set_step` stands the dictionary that carries one."""

WITHOUT_A_RUN = {
    "disabled_record": Case("idle_metric.record(0.5)", "idle_counter.add(1)"),
    "disabled_log_10": Case("otel_ml.log(TEN)", "for name in TEN: idle_histogram.record(TEN[name], ATTRIBUTES)"),
    "disabled_timed": Case("with otel_ml.timed('forward'): pass", "with idle_tracer.start_as_current_span('x'): pass"),
    "empty_call": Case("empty(0.5)", "idle_counter.add(1)"),
}
"""The other side is OpenTelemetry's API with its no-op implementations, as in a program without an SDK. `empty_call` is
a function that does nothing: no call of Python costs less."""


def measure(size: Size) -> Found:
    """Measure in two processes: one with a run, whose receiver takes everything, and one without."""
    with sink() as url:
        env = sending_to(url, OTEL_ML_SPANS_PER_STEP="1000000000")  # a span over the budget would cost nothing
        found = answer_of(in_a_run, env=env, **of(size))
    found |= answer_of(without_a_run, **of(size))
    return Found({name: figure for case, sides in found.items() for name, figure in figures(case, sides)})


def of(size: Size) -> dict[str, Any]:
    """Return how often, and how long a turn."""
    return {"pairs": size.pairs, "cold_pairs": size.cold_pairs, "turn_s": size.turn_s}


def figures(case: str, sides: Mapping[str, Any]) -> list[tuple[str, Figure]]:
    """Return a case's figures: each side hot and cold, and the ratios."""
    found = []
    for state in ("hot", "cold"):
        ours, theirs = sides[state]
        found += [
            (f"{case}.{state}", middle(ours, "µs")),
            (f"{case}.{state}.sdk", middle(theirs, "µs", better="neither")),
            (f"{case}.{state}.ratio", ratio(ours, theirs)),
        ]
    return found


def in_a_run(pairs: int, cold_pairs: int, turn_s: float) -> dict[str, Any]:
    """Measure in this process, in a run whose timers OpenTelemetry sees."""
    import itertools

    from opentelemetry import trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    import otel_ml

    provider = TracerProvider()
    trace.set_tracer_provider(provider)
    meter = MeterProvider([InMemoryMetricReader()]).get_meter("bench")
    otel_ml.init("bench")
    otel_ml.set_step(0)
    names = {
        "otel_ml": otel_ml,
        "metric": otel_ml.get_meter().metric("one"),
        "TEN": TEN,
        "ATTRIBUTES": ATTRIBUTES,
        "STEP": itertools.count(1),
        "tracer": TracerProvider().get_tracer("bench"),
        "idle_tracer": trace.NoOpTracer(),
        "histogram": meter.create_histogram("one"),
        "histograms": {name: meter.create_histogram(name) for name in TEN},
    }
    found = compared(IN_A_RUN, names, (pairs, cold_pairs), turn_s, flush=lambda: otel_ml.flush(10))
    otel_ml.shutdown()
    return found


def without_a_run(pairs: int, cold_pairs: int, turn_s: float) -> dict[str, Any]:
    """Measure in this process, which has no run and asks for none."""
    from opentelemetry.metrics import NoOpMeter
    from opentelemetry.trace import NoOpTracer

    import otel_ml

    meter = NoOpMeter("idle")
    names = {
        "otel_ml": otel_ml,
        "idle_metric": otel_ml.get_meter().metric("one"),
        "TEN": TEN,
        "ATTRIBUTES": ATTRIBUTES,
        "empty": empty,
        "idle_counter": meter.create_counter("one"),
        "idle_histogram": meter.create_histogram("one"),
        "idle_tracer": NoOpTracer(),
    }
    return compared(WITHOUT_A_RUN, names, (pairs, cold_pairs), turn_s, flush=lambda: time.sleep(0))


def empty(value: float) -> None:
    """Do nothing."""


def compared(
    cases: Mapping[str, Case], names: Mapping[str, Any], pairs: tuple[int, int], turn_s: float, *, flush: Any
) -> dict[str, Any]:
    """Return µs of each turn of both sides, by case, hot and cold; `pairs` are of these two."""
    found = {}
    for title, case in cases.items():
        hot = in_turns(
            hot_calls(case.ours, names, turn_s), hot_calls(case.theirs, names, turn_s), pairs[0], after_ours=flush
        )
        cold = in_turns(cold_call(case.ours, names), cold_call(case.theirs, names), pairs[1])
        found[title] = {"hot": hot, "cold": cold}
    return found
