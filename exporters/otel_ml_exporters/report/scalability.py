"""Several runs side by side: how much quicker more ranks are, and what that costs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from otel_ml_exporters.report.contents import Contents
from otel_ml_exporters.report.timing import timers
from otel_ml_exporters.runs.history import Series

__all__ = ["Scaling", "scaling"]

_DEVICE = r"(?:^|/)hw\.{}/.*host\.name/(?P<host>.+)/hw\.id/(?P<id>[^/]+)"
"""A device's own series, as `hardware.Monitor` names them."""

_ENERGY = re.compile(_DEVICE.format("energy"))
_UTILISATION = re.compile(_DEVICE.format(r"gpu\.utilization"))
_TOTAL = re.compile(r"(?:^|/)hw\.energy\.total/(?P<of>rank|host\.name)")
_COMPUTE = re.compile(r"compute_fraction")
_STEP = re.compile(r"(?:^|/)hw\.energy\.step$")


class Scaling(NamedTuple):
    """A run beside the others; None where nothing was recorded that tells.

    Attributes:
        status: where it is not finished.
        step_s: median of `time/step`; where the trainer has none, of the role and axis with the most steps.
        speed_up: how many times as quick a step is as in the run with the fewest ranks (the first of them).
        efficiency: speed-up for each time as many ranks.
        gpus: whose energy or utilisation was recorded: the next two are theirs alone.
        energy_j: of all of them together.
        utilisation: of a GPU, the mean over the run and over GPUs.
        compute: share of the step in which ranks compute.
    """

    run: str
    status: str | None
    ranks: int | None
    step_s: float | None
    speed_up: float | None
    efficiency: float | None
    gpus: int | None
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
        status=run.history.status if run.history.status != "finished" else None,
        ranks=run.ranks,
        step_s=step_s,
        speed_up=speed_up,
        efficiency=speed_up / more if speed_up is not None and more else None,
        gpus=len(_devices(run, _ENERGY).keys() | _devices(run, _UTILISATION).keys()) or None,
        energy_j=_energy(run),
        utilisation=_utilisation(run),
        compute=_compute(run),
    )


def _step_s(run: Contents) -> float | None:
    series = run.history.get("time/step") or max(
        (found for key, found in run.history.series.items() if key.name.endswith("/time/step")), key=len, default={}
    )
    values = [value for value in series.values() if value > 0]
    return median(values) if values else None


def _energy(run: Contents) -> float | None:
    """Return the sum over devices; else over what each rank says of its own at the end, or what all used in each step.

    A device's series goes on over restarts of the job. What is said at the end is of the last life alone, and two ranks
    that share a device both count it.
    """
    used = [value for found in _devices(run, _ENERGY).values() for series in found for value in series.values()]
    if used:
        return sum(value for value in used if value == value)
    said: dict[str, list[float]] = {}
    for name, value in run.history.summary.items():
        if match := _TOTAL.search(name):
            said.setdefault(match["of"], []).append(value)
    if said:
        return sum(said.get("host.name") or said["rank"])
    by_step = [value for series in _series(run, _STEP) for value in series.values() if value == value]
    return sum(by_step) if by_step else None


def _utilisation(run: Contents) -> float | None:
    values = [[*series.values()] for found in _devices(run, _UTILISATION).values() for series in found]
    means = [fmean(known) for every in values if (known := [value for value in every if value == value])]
    return fmean(means) if means else None


def _devices(run: Contents, wanted: re.Pattern[str]) -> dict[tuple[str, str], list[Series]]:
    """Return the series of each device, by its host and id."""
    found: dict[tuple[str, str], list[Series]] = {}
    for key, series in sorted(run.history.series.items()):
        if series and (match := wanted.search(key.name)):
            found.setdefault((match["host"], match["id"]), []).append(series)
    return found


def _compute(run: Contents) -> float | None:
    """What is recorded as such, else the share of `forward`, `backward` and `optimizer`, where these are timed."""
    said = [value for series in _series(run, _COMPUTE) for value in series.values() if value == value]
    if said:
        return fmean(said)
    shares = [timer.share for timer in timers(run.history) if timer.name in {"forward", "backward", "optimizer"}]
    known = [share for share in shares if share is not None]
    return min(sum(known), 1.0) if known else None


def _series(run: Contents, wanted: re.Pattern[str]) -> list[Series]:
    return [series for key, series in sorted(run.history.series.items()) if series and wanted.search(key.name)]
