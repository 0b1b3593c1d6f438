"""What it costs the service to look for who is slow, for pauses, and for where the time of a step goes."""

from __future__ import annotations

from tests.benchmarks.figures import Figure, Found
from tests.benchmarks.ranks import Steps, allow_files, job
from tests.benchmarks.sizes import Size
from tests.benchmarks.under_load import service

__all__ = ["measure"]

JOBS = {256: Steps(100, 20), 8: Steps(100, 20, seconds=0.1)}
"""Ranks → their steps: many with slow steps, and a host whose steps are short."""

SHARE = 1 / 6
"""Of the time of the job of 1,024 ranks: so long is each turn."""

TURNS = ("on", "off", "off", "on")


def measure(size: Size) -> Found:
    """Run each job in turns with and without findings."""
    allow_files()
    seconds = max(5.0, size.job_s[1024] * SHARE)
    return Found({f"{ranks}.cpu": cost(ranks, each, seconds) for ranks, each in JOBS.items()}, {})


def cost(ranks: int, each: Steps, seconds: float) -> Figure:
    """Return how much more CPU time the service takes with findings than without."""
    cores: dict[str, list[float]] = {"on": [], "off": []}
    for findings in TURNS:
        with service(OTEL_ML_FINDINGS=findings) as one:
            found, _ = job(one, ranks, each, seconds)
        cores[findings].append(found["cores"].value or 0.0)
    with_findings, without = (sum(cores[findings]) / len(cores[findings]) for findings in ("on", "off"))
    note = f"{ranks} ranks, a step each {each.seconds:g} s: {with_findings:.3f} and {without:.3f} cores"
    return Figure((with_findings / without - 1) * 100, "%", note=note)
