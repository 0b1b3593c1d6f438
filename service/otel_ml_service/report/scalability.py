"""Several runs side by side: how much quicker more ranks are, and what that costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import NamedTuple

from otel_ml_service.report.contents import Contents
from otel_ml_service.report.hardware import energy, gpus, processor_utilization, utilization
from otel_ml_service.report.timing import timers
from otel_ml_service.stored_runs.run_history import Series

__all__ = ["Scaling", "Yardstick", "run_names", "scaling", "yardstick"]

_STEP = "time/step"
_RATES = ("throughput/samples_per_sec", "throughput/tokens_per_sec")
"""What a job does in a second, whatever the size of its steps."""


class Yardstick(NamedTuple):
    """What runs are compared by: the same in all of them.

    Attributes:
        step: the timer of a step, with its role and axis; empty where no run has one.
        rate: what they do in a second, where every run says so; else empty.
    """

    step: str
    rate: str


class Scaling(NamedTuple):
    """A run beside the others; None where nothing was recorded that tells.

    Attributes:
        run: what it is called beside the others.
        status: where it is not finished.
        steps: how many have a time.
        step_s: the median of them.
        throughput: the median of what all ranks do in a second.
        speed_up: how many times as much a second as in the run with the fewest ranks (the first of them): by
            `throughput`, or else as if every step were the same work.
        efficiency: speed-up for each time as many ranks.
        energy_j: of the run; `energy_of` says of which part of it.
        gpus: whose energy or utilization was recorded.
        utilization, cpu_utilization: mean over the run, of GPUs and of hosts; `utilization_of` says of how many.
        compute: share of the step in which ranks compute.
    """

    run: str
    status: str | None
    ranks: int | None
    steps: int | None
    step_s: float | None
    throughput: float | None
    speed_up: float | None
    efficiency: float | None
    gpus: int | None
    energy_j: float | None
    energy_of: str | None
    utilization: float | None
    cpu_utilization: float | None
    utilization_of: str | None
    compute: float | None


def yardstick(runs: Sequence[Contents]) -> Yardstick:
    """Return by what all runs can be compared: by the steps that most of them have, the trainer's first."""
    having = Counter(name for run in runs for name in _named(run, _STEP))
    lengths = Counter[str]()
    for run in runs:
        lengths.update({name: len(_values(run, name)) for name in _named(run, _STEP)})
    # Sorted: of names that are as good as each other every report has the same one.
    step = max(sorted(having), key=lambda name: (having[name], name == _STEP, lengths[name]), default="")
    # Those of the first run are enough: a rate that it lacks is not in every run.
    shared = [name for rate in _RATES for name in sorted(_named(runs[0], rate), key=_shortest)]
    rate = next((name for name in shared if all(_values(run, name) for run in runs)), "")
    return Yardstick(step, rate)


def _shortest(name: str) -> tuple[int, str]:
    """Sort by length, the trainer's name first; those of one length by the alphabet, so that reports are the same."""
    return len(name), name


def _named(run: Contents, name: str) -> set[str]:
    """Return the published names of a metric, of whichever role and axis; further reductions are not among them."""
    return {key.name for key, series in run.history.series.items() if f"/{key.name}".endswith(f"/{name}") and series}


def run_names(runs: Sequence[Contents]) -> list[str]:
    """Return what to call each run: its name; where two have the same, the id, with the experiment if that is, too."""
    names = [run.name or run.id for run in runs]
    ids = [run.id for run in runs]
    return [
        name if names.count(name) == 1 else run.id if ids.count(run.id) == 1 else f"{run.experiment}/{run.id}"
        for name, run in zip(names, runs, strict=True)
    ]


def scaling(runs: Sequence[Contents]) -> list[Scaling]:
    """Return a row for every run, the fewest ranks first; those of which nobody says how many ranks come last."""
    by = yardstick(runs)
    ordered = sorted(zip(runs, run_names(runs), strict=True), key=lambda named: named[0].ranks or math.inf)
    # The fewest ranks come first, so the first run with a speed is the base.
    base = next((run for run, _ in ordered if _speed(run, by) is not None), None)
    return [_row(run, name, base, by) for run, name in ordered]


def _row(run: Contents, name: str, base: Contents | None, by: Yardstick) -> Scaling:
    speed, base_speed = _speed(run, by), None if base is None else _speed(base, by)
    speed_up = speed / base_speed if speed is not None and base_speed is not None else None
    # How many times the ranks of the base: a speed-up by as much is an efficiency of 1.
    more = run.ranks / base.ranks if base is not None and run.ranks and base.ranks else None
    used, busy, processors = energy(run), utilization(run), processor_utilization(run)
    times = _values(run, by.step)
    return Scaling(
        run=name,
        status=run.history.status if run.history.status != "finished" else None,
        ranks=run.ranks,
        steps=len(times) or None,
        step_s=_median(times),
        throughput=_median(_values(run, by.rate)),
        speed_up=speed_up,
        efficiency=speed_up / more if speed_up is not None and more else None,
        gpus=gpus(run),
        energy_j=None if used is None else used.value,
        energy_of=None if used is None else used.of,
        utilization=None if busy is None else busy.value,
        cpu_utilization=None if processors is None else processors.value,
        utilization_of=", ".join(measured.of for measured in (busy, processors) if measured is not None) or None,
        compute=_compute(run),
    )


def _speed(run: Contents, by: Yardstick) -> float | None:
    if by.rate:
        return _median(_values(run, by.rate))
    seconds = _median(_values(run, by.step))
    return None if seconds is None else 1 / seconds


def _values(run: Contents, name: str) -> list[float]:
    return [value for value in run.history.get(name).values() if 0 < value < math.inf]


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _compute(run: Contents) -> float | None:
    """What is recorded as such, else the share of `forward`, `backward` and `optimizer`, where these are timed."""
    said = [value for series in _series(run, "compute_fraction") for value in series.values() if math.isfinite(value)]
    if said:
        return fmean(said)
    shares = [timer.share for timer in timers(run.history) if timer.name in {"forward", "backward", "optimizer"}]
    known = [share for share in shares if share is not None]
    return min(sum(known), 1.0) if known else None


def _series(run: Contents, name: str) -> Iterator[Series]:
    yield from (run.history.get(found) for found in sorted(_named(run, name)))
