"""What the hardware of a run used and how busy it was: of all that was measured, and of how much of it that is."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from statistics import fmean
from typing import NamedTuple

from otel_ml_service.report.contents import Contents

__all__ = ["HostUse", "Measured", "energy", "gpus", "hosts", "processor_utilization", "utilization"]

_TOTAL_OF_RANK = re.compile(r"hw\.energy\.total/rank_\d+(/rank_\d+)?")
"""Twice a rank: two roles have ranks of one number."""
_TOTAL_OF_GPU = re.compile(r"hw\.energy\.total/(?P<gpu>host\.name/.+?/hw\.id/[^/]+)(/rank_\d+)?")
"""With a rank: it went on sampling where another one had ended."""
_STEP = re.compile(r"(?P<place>.*/)?hw\.energy\.step(?P<mean>/mean)?")
_GPU = re.compile(
    r"(?:.*/)?(?P<measure>hw\.energy|hw\.gpu\.utilization)/(?P<gpu>host\.name/.+?/hw\.id/[^/]+)(/hw\.type/gpu)?"
)
_HOST = re.compile(r"(?:.*/)?system\.cpu\.utilization/host\.name/(?P<host>[^/]+)")
_MEGATRON = "iter-energy/gpu"


class Measured(NamedTuple):
    """A number, and of how many ranks, GPUs or hosts it is."""

    value: float
    of: str


class HostUse(NamedTuple):
    """How busy a host is, as shares; None where that is not measured.

    Attributes:
        gpu: the mean over its GPUs.
    """

    gpu: float | None
    cpu: float | None


def hosts(values: Mapping[str, float]) -> Mapping[str, HostUse]:
    """Return how busy each host is, by values of one time, the least busy first.

    Examples:
        >>> gpus = {"hw.gpu.utilization/host.name/b/hw.id/0": 0.9, "hw.gpu.utilization/host.name/a/hw.id/0": 0.2}
        >>> hosts({**gpus, "system.cpu.utilization/host.name/b": 0.5, "loss": 1.0})
        {'a': HostUse(gpu=0.2, cpu=None), 'b': HostUse(gpu=0.9, cpu=0.5)}
    """
    gpu, cpu = defaultdict[str, list[float]](list), dict[str, float]()
    for found, share in _matching(values, _GPU):
        if found["measure"] == "hw.gpu.utilization":
            # `host.name/b/hw.id/0` → `b`.
            gpu[found["gpu"].split("/")[1]].append(share)
    for found, share in _matching(values, _HOST):
        cpu[found["host"]] = share
    uses = {host: HostUse(fmean(gpu[host]) if host in gpu else None, cpu.get(host)) for host in {**gpu, **cpu}}
    return dict(sorted(uses.items(), key=lambda entry: [math.inf if share is None else share for share in entry[1]]))


def energy(run: Contents) -> Measured | None:
    """Return the joules of a run: of its ranks, who measure what they use, else of the GPUs of its hosts.

    Both would count a GPU twice, and a host may have GPUs that the run does not use. What is there is a part at most: a
    rank that was killed has no total, but steps until then, so the larger sum is nearer to what was used.
    """
    for ways in ((_by_totals, _by_steps), (_by_gpus, _by_totals_of_gpus), (_megatrons,)):
        found = [measured for way in ways if (measured := way(run)) is not None]
        if found:
            return max(found, key=lambda measured: measured.value)
    return None


def gpus(run: Contents) -> int | None:
    """Return how many GPUs have energy or utilization of their own."""
    found = (_GPU.fullmatch(key.name) for key, series in run.history.series.items() if series)
    return len({match["gpu"] for match in found if match is not None}) or None


def _by_totals(run: Contents) -> Measured | None:
    found = _matching(run.history.summary, _TOTAL_OF_RANK)
    return Measured(sum(value for _, value in found), _of_ranks(run, {len(found)})) if found else None


def _by_steps(run: Contents) -> Measured | None:
    """The mean of ranks beside their sum tells how many they were."""
    joules, ranks = 0.0, defaultdict[tuple[str, int, int], int](int)
    for (axis, step, attempt), values in run.energy.items():
        for found, value in _matching(values, _STEP):
            if found["mean"] is None:
                joules += value
                mean = values.get(f"{found.string}/mean", math.nan)
                # A sum of 12 J beside a mean of 3 J is of four ranks.
                ranks[axis, step, attempt] += round(value / mean) if mean > 0 else 0
    return Measured(joules, _of_ranks(run, set(ranks.values()) - {0})) if ranks else None


def _by_gpus(run: Contents) -> Measured | None:
    joules, counted = 0.0, set[str]()
    for values in run.energy.values():
        for found, value in _matching(values, _GPU):
            joules += value
            counted.add(found["gpu"])
    return Measured(joules, _of_gpus(run, counted)) if counted else None


def _by_totals_of_gpus(run: Contents) -> Measured | None:
    found = _matching(run.history.summary, _TOTAL_OF_GPU)
    counted = {match["gpu"] for match, _ in found}
    return Measured(sum(value for _, value in found), _of_gpus(run, counted)) if found else None


def _megatrons(run: Contents) -> Measured | None:
    """Megatron divides by the ranks what it measured on all."""
    joules = [value for value in run.history.get(_MEGATRON).values() if math.isfinite(value)]
    return Measured(sum(joules) * run.ranks, _of_ranks(run, {run.ranks})) if joules and run.ranks else None


def utilization(run: Contents) -> Measured | None:
    """Return the share of the time in which a kernel ran, over all GPUs; each GPU counts the same."""
    shares = _shares(run, _GPU, "gpu")
    return Measured(fmean(shares.values()), _of_gpus(run, shares)) if shares else None


def processor_utilization(run: Contents) -> Measured | None:
    """Return the share of the hosts' processors in use, over all hosts."""
    shares = _shares(run, _HOST, "host")
    return Measured(fmean(shares.values()), _plural(len(shares), "host")) if shares else None


def _shares(run: Contents, name: re.Pattern[str], place: str) -> Mapping[str, float]:
    """Return the mean of each GPU or host; several processes may have sampled it, one after the other."""
    values = defaultdict[str, list[float]](list)
    for key, series in run.history.series.items():
        found = name.fullmatch(key.name)
        if found is not None and found.groupdict().get("measure") != "hw.energy":
            values[found[place]] += [value for value in series.values() if math.isfinite(value)]
    return {what: fmean(found) for what, found in values.items() if found}


def _matching(values: Mapping[str, float], name: re.Pattern[str]) -> list[tuple[re.Match[str], float]]:
    found = ((name.fullmatch(key), value) for key, value in values.items() if math.isfinite(value))
    return [(match, value) for match, value in found if match is not None]


def _of_ranks(run: Contents, counts: Iterable[int]) -> str:
    """More processes than ranks of the trainer: other roles have GPUs, too, or none, and nothing tells which."""
    known = sorted(counts)
    if not known:
        return "ranks"
    # Steps may have been measured by different numbers of ranks.
    shown = str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"
    processes = len(run.workers) or run.ranks or 0
    return (
        _plural(known[-1], "rank")
        if known[0] >= processes and len(known) == 1
        else f"{shown} of {_plural(processes, 'rank')}"
    )


def _of_gpus(run: Contents, measured: Collection[str]) -> str:
    hosts = run.history.params.get("hardware")
    facts = hosts.values() if isinstance(hosts, Mapping) else ()
    # `hardware` among the parameters is host → device → facts; a driver's version beside the devices is a text.
    there = sum(isinstance(fact, Mapping) for host in facts if isinstance(host, Mapping) for fact in host.values())
    if len(measured) < there:
        return f"{len(measured)} of {there} GPUs"
    ranks = run.ranks or 0
    return _plural(len(measured), "GPU") + (f" for {ranks} ranks" if len(measured) < ranks else "")


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
