"""Memory of a worker over that of bare Python, and whether it grows: steps as fast as the sender can take them."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

from tests.benchmarks.child import bare_environment, sending_to
from tests.benchmarks.figures import Curve, Figure, Found
from tests.benchmarks.sink import grpc_sink, sink
from tests.benchmarks.sizes import Size

__all__ = ["measure"]

MB = 10**6
GRPC_STEPS = 20_000
"""Enough to see what the library is; that nothing grows is shown with HTTP."""


def measure(size: Size) -> Found:
    """Measure with both protocols; the long run is HTTP's."""
    with sink() as url:
        http = worker(size.memory_steps, sending_to(url))
    with grpc_sink() as url:
        grpc = worker(min(size.memory_steps, GRPC_STEPS), sending_to(url, OTEL_EXPORTER_OTLP_PROTOCOL="grpc"))
    (_, bare), *http_steps = http
    figures = {
        "http.over_bare": over_bare(http),
        "grpc.over_bare": over_bare(grpc),
        "bare": Figure(bare / MB, "MB", better="neither", note="Python with nothing imported"),
        "growth": growth(http_steps),
    }
    line = {"HTTP": [(steps, (used - bare) / MB) for steps, used in http_steps]}
    return Found(figures, {"steps": Curve("Memory of a worker over bare Python", "steps of 12 values", "MB", line)})


def over_bare(samples: list[tuple[int, int]]) -> Figure:
    """Return what there is at the end over what there was before `import otel_ml`."""
    return Figure((samples[-1][1] - samples[0][1]) / MB, "MB", note=f"after {samples[-1][0]:,} steps")


def growth(samples: list[tuple[int, int]]) -> Figure:
    """Return by how much the last quarter of the steps is above the second: medians, as one MB comes and goes."""
    quarter = len(samples) // 4
    second, last = ([used for _, used in part] for part in (samples[quarter : 2 * quarter], samples[-quarter:]))
    note = f"from the second quarter of {samples[-1][0]:,} steps to the last, medians"
    return Figure((median(last) - median(second)) / MB, "MB", note=note)


def worker(steps: int, env: dict[str, str]) -> list[tuple[int, int]]:
    """Return (steps, bytes resident) of a worker over time; the first is before it has imported otel_ml."""
    command = [sys.executable, "-m", "tests.benchmarks.memory_worker", str(steps)]
    done = subprocess.run(
        command, env=bare_environment(**env), capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode:
        raise RuntimeError(f"The worker failed:\n{done.stdout}{done.stderr}")
    return [(at, used) for at, used in json.loads(done.stdout.splitlines()[-1])]
