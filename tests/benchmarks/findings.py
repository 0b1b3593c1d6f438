"""What it costs the service to look for who is slow, for pauses, and for where the time of a step goes."""

from __future__ import annotations

import statistics
from dataclasses import replace

from tests.benchmarks.figures import Figure, Found, middle
from tests.benchmarks.ranks import Steps, allow_files, job
from tests.benchmarks.sizes import Size
from tests.benchmarks.under_load import service

__all__ = ["measure"]

JOBS = {256: Steps(100, 20), 8: Steps(100, 20, seconds=0.1)}
"""Ranks → their steps: many with slow steps, and a host whose steps are short."""

SHARE = 1 / 6
"""Of the time of the job of 1,024 ranks: so long is each turn."""

PAIRS = 7


def measure(size: Size) -> Found:
    """Run each job in turns with and without findings."""
    allow_files()
    seconds = max(5.0, size.job_s[1024] * SHARE)
    pairs = PAIRS if size.job_s[1024] >= 60 else 1
    return Found({f"{ranks}.cpu": cost(ranks, each, seconds, pairs) for ranks, each in JOBS.items()})


def cost(ranks: int, each: Steps, seconds: float, pairs: int) -> Figure:
    """Return how much more CPU time the service takes with findings than without: the median of pairs of turns."""
    more, cores = [], []
    for pair in range(pairs):
        order = ("on", "off") if pair % 2 else ("off", "on")
        found = {findings: cores_of(ranks, each, seconds, findings) for findings in order}
        more.append((found["on"] / found["off"] - 1) * 100)
        cores.append(found["off"])
    figure = middle(more, "%")
    note = f"{ranks} ranks, a step each {each.seconds:g} s, {statistics.median(cores):.3f} cores without"
    return replace(figure, note=note)


def cores_of(ranks: int, each: Steps, seconds: float, findings: str) -> float:
    with service(OTEL_ML_FINDINGS=findings) as one:
        found, _ = job(one, ranks, each, seconds)
    cores = found["cores"].value
    assert cores, "the service was not seen at work"
    return cores
