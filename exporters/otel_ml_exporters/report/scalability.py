"""Several runs side by side: how much quicker more ranks are, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from otel_ml_exporters.report.contents import Contents
from otel_ml_exporters.report.timing import timers
from otel_ml_exporters.runs.history import Series

__all__ = ["Scaling", "scaling"]


class Scaling(NamedTuple):
    """A run beside the others; None where nothing was recorded that tells.

    Attributes:
        step_s: median of `time/step`.
        speed_up: how many times as quick a step is as in the run with the fewest ranks (the first of them).
        efficiency: speed-up for each time as many ranks.
        energy_j: of the run.
        utilisation: mean over the run, as recorded.
        compute: share of the step in which ranks compute.
    """

    run: str
    ranks: int | None
    step_s: float | None
    speed_up: float | None
    efficiency: float | None
    energy_j: float | None
    utilisation: float | None
    compute: float | None


def scaling(runs: Sequence[Contents]) -> list[Scaling]:
    """Return a row for every run, the fewest ranks first."""
    ordered = sorted(runs, key=lambda run: run.ranks or 0)
    steps = {id(run): _step_s(run) for run in ordered}
    base = next((run for run in ordered if steps[id(run)]), None)
    return [_row(run, steps[id(run)], base, steps[id(base)] if base is not None else None) for run in ordered]


def _row(run: Contents, step_s: float | None, base: Contents | None, base_s: float | None) -> Scaling:
    speed_up = base_s / step_s if base_s and step_s else None
    more = run.ranks / base.ranks if base is not None and run.ranks and base.ranks else None
    return Scaling(
        run=run.id,
        ranks=run.ranks,
        step_s=step_s,
        speed_up=speed_up,
        efficiency=speed_up / more if speed_up is not None and more else None,
        energy_j=_energy(run),
        utilisation=_mean(run, lambda name: "utilization" in name or "utilisation" in name),
        compute=_compute(run),
    )


def _step_s(run: Contents) -> float | None:
    values = [value for value in run.history.get("time/step").values() if value > 0]
    return median(values) if values else None


def _energy(run: Contents) -> float | None:
    """Of a summary, else of a series: the growth of a counter, the sum of what is recorded step by step."""
    found = [value for name, value in run.history.summary.items() if "energy" in name.lower()]
    if found:
        return max(found)
    for series in _series(run, lambda name: "energy" in name):
        values = list(series.values())
        ascends = all(before <= after for before, after in pairwise(values))
        return values[-1] - values[0] if ascends and len(values) > 2 else sum(values)
    return None


def _compute(run: Contents) -> float | None:
    """What is recorded as such, else the share of `forward`, `backward` and `optimizer`, where these are timed."""
    said = _mean(run, lambda name: "compute_fraction" in name)
    if said is not None:
        return said
    shares = [timer.share for timer in timers(run.history) if timer.name in {"forward", "backward", "optimizer"}]
    known = [share for share in shares if share is not None]
    return min(sum(known), 1.0) if known else None


def _mean(run: Contents, wanted: Callable[[str], bool]) -> float | None:
    values = [value for series in _series(run, wanted) for value in series.values() if value == value]
    return fmean(values) if values else None


def _series(run: Contents, wanted: Callable[[str], bool]) -> list[Series]:
    return [series for key, series in sorted(run.history.series.items()) if wanted(key.name.lower()) and series]
