"""What importing costs: fresh processes, ours and the others' in turns."""

from __future__ import annotations

import subprocess
import sys

from tests.benchmarks.child import bare_environment
from tests.benchmarks.figures import Figure, Found, middle, ratio
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import in_turns

__all__ = ["measure"]

SDK = (
    "import opentelemetry.sdk.metrics, opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.metric_exporter"
)
OURS = {
    "otel_ml": "import otel_ml",
    "recording": "import otel_ml; otel_ml.log, otel_ml.timed, otel_ml.set_step",
}
"""`recording` also loads what records, as the first use of a name does."""


def measure(size: Size) -> Found:
    """Measure the import, and the import with what the first record loads."""
    figures: dict[str, Figure] = {}
    for name, statement in OURS.items():
        ours, theirs = in_turns(lambda: milliseconds(statement), lambda: milliseconds(SDK), size.starts)  # noqa: B023
        figures[name] = middle(ours, "ms")
        figures[f"{name}.sdk"] = middle(theirs, "ms", better="neither")
        figures[f"{name}.ratio"] = ratio(ours, theirs)
    return Found(figures)


def milliseconds(statement: str) -> float:
    """Return how long a statement takes in a fresh process, without the start of Python."""
    program = f"from time import perf_counter as now; a = now(); {statement}; print((now() - a) * 1e3)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=bare_environment(), capture_output=True, text=True, check=True
    )
    return float(done.stdout)
