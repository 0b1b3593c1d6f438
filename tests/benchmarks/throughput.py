"""How much the service takes, from OTLP to the row in TensorBoard and JSONL, for as long as it lasts."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.benchmarks import beside_collector
from tests.benchmarks.figures import Figure, Found, absent
from tests.benchmarks.sizes import Size
from tests.benchmarks.under_load import Load, Outcome, served, service
from tests.collector.pipeline import OTELCOL, Collector

__all__ = ["NO_COLLECTOR", "measure"]

NO_COLLECTOR = "no Collector (make collector)"
WRITERS, PER_REQUEST, METRICS = 64, 20, 100


def measure(size: Size) -> Found:
    """Measure own clients, foreign ones, spans, both beside a Collector, and own ones through the Collector."""
    figures: dict[str, Figure] = {}
    own = Load("own", WRITERS, size.service_s, {"metrics": METRICS, "per_request": PER_REQUEST})
    with service() as one:
        figures |= told("own", own, served(own, one), "points/s")
    foreign = Load("foreign", WRITERS, size.hop_s, {"metrics": METRICS, "attributes": 2, "per_request": 5})
    with service() as one:
        figures |= told("foreign", foreign, served(foreign, one), "points/s")
    spans = Load("spans", WRITERS, size.hop_s, {"spans": 20, "per_request": PER_REQUEST})
    with service("jsonl") as one:
        figures |= told("spans", spans, served(spans, one), "spans/s")
    figures |= {**beside_collector.measure("own", own, size), **beside_collector.measure("foreign", foreign, size)}
    return Found(figures | through_the_collector(size))


def through_the_collector(size: Size) -> dict[str, Figure]:
    """Measure own clients that send to the gateway of `collector-config/`."""
    if not OTELCOL.exists():
        units = {"rate": "points/s", "lost": "1", "duration": "s"}
        return {f"collector.{name}": absent(unit, NO_COLLECTOR) for name, unit in units.items()}
    load = Load("own", WRITERS, size.hop_s, {"metrics": METRICS, "per_request": PER_REQUEST})
    with (
        service() as one,
        tempfile.TemporaryDirectory(prefix="otel-ml-bench-") as folder,
        Collector(Path(folder), "gateway", OTEL_ML_SERVICE=one.grpc) as collector,
    ):
        return told("collector", load, served(load, one, endpoint=collector.endpoint), "points/s")


def told(name: str, load: Load, outcome: Outcome, unit: str) -> dict[str, Figure]:
    """Return the figures of one load."""
    note = f"{outcome.items:,} in {outcome.seconds:.1f} s, the last row included"
    memory = max(mib for _, mib in outcome.watch.memory())
    wrong = "" if outcome.exact else "a row is missing, or is not the mean of what was sent"
    return {
        f"{name}.rate": Figure(outcome.rate, unit, better="more", note=note),
        f"{name}.lost": Figure(float(outcome.lost or bool(wrong)), "1", note=wrong),
        f"{name}.duration": Figure(load.seconds, "s", better="neither", note="of sending as fast as it is taken"),
        f"{name}.cores": Figure(outcome.watch.cores(), "cores", better="neither"),
        f"{name}.memory": Figure(memory, "MiB"),
    }
