"""The calls of a run where otel_ml was installed without its compiled part."""

from __future__ import annotations

from tests.benchmarks import calls
from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Found
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size

__all__ = ["measure"]


def measure(size: Size) -> Found:
    """Measure as `calls` does, in a process that cannot import the compiled module."""
    with sink() as url:
        env = sending_to(url, OTEL_ML_SPANS_PER_STEP="1000000000")
        found = answer_of(calls.in_a_run, env=env, blocked=["otel_ml._native"], **calls.of(size))
    return Found({name: figure for case, sides in found.items() for name, figure in calls.figures(case, sides)})
