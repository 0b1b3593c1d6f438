"""A step of 100 metrics and 20 timers on the training thread: caches cold, the service down."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

from tests.benchmarks.caches import evict
from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Figure, Found, ratio
from tests.benchmarks.sizes import Size

__all__ = ["measure"]

HUNDRED = {f"metric_{i}": float(i) for i in range(100)}
TIMERS = 20
STEP_S = 0.05
NOBODY = "http://127.0.0.1:9"
"""The discard port: nobody listens, connections are refused."""


def measure(size: Size) -> Found:
    """Measure whole steps of both, one of ours, one of the SDK's."""
    ours, theirs = answer_of(both, env=sending_to(NOBODY), steps=size.cold_steps)
    return Found(
        {
            "p50": quantile(ours, 0.5, "less"),
            "p99": quantile(ours, 0.99, "less"),
            "sdk.p50": quantile(theirs, 0.5, "neither"),
            "sdk.p99": quantile(theirs, 0.99, "neither"),
            "ratio": ratio(ours, theirs),
        }
    )


def quantile(samples: list[float], share: float, better: str) -> Figure:
    """Return a nearest-rank quantile, with the quartiles of all samples as its spread where it is the median."""
    ordered = sorted(samples)
    value = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    spread = statistics.quantiles(ordered, n=4) if share == 0.5 else (None, None, None)
    return Figure(value, "µs", spread[0], spread[2], better, note=f"{len(samples)} steps")  # type: ignore[arg-type]


def both(steps: int) -> list[list[float]]:
    """Return µs of each step of ours and of theirs, in this process."""
    import otel_ml

    otel_ml.init("bench")
    sides = [our_step(), their_step()]
    taken: list[list[float]] = [[], []]
    for index in range(-5, steps):  # the first ones make metrics and timers known
        gc.collect()
        for side, step in enumerate(sides):
            time.sleep(STEP_S)
            evict()
            begin = time.perf_counter()
            step(index + 5)
            if index >= 0:
                taken[side].append((time.perf_counter() - begin) * 1e6)
    otel_ml.shutdown(timeout=0.5)
    return taken


def our_step() -> Callable[[int], None]:
    import otel_ml

    def step(index: int) -> None:
        otel_ml.set_step(index)
        otel_ml.log(HUNDRED)
        for _ in range(TIMERS):
            with otel_ml.timed("phase"):
                pass

    return step


def their_step() -> Callable[[int], None]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    meter = MeterProvider([InMemoryMetricReader()]).get_meter("bench")
    tracer = TracerProvider().get_tracer("bench")
    histograms = {name: meter.create_histogram(name) for name in HUNDRED}
    duration = meter.create_histogram("phase")

    def step(index: int) -> None:
        attributes = {"step": index, "axis": "step", "rank": 0}
        for name, value in HUNDRED.items():
            histograms[name].record(value, attributes)
        for _ in range(TIMERS):
            begin = time.perf_counter()
            with tracer.start_as_current_span("phase"):
                pass
            duration.record(time.perf_counter() - begin, attributes)

    return step
