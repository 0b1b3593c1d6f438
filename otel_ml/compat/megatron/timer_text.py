"""Timers as text, in the documented form: of one rank at once, of all ranks from the run's file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from os import PathLike

import otel_ml
from otel_ml import OtelMLError, Run
from otel_ml.compat.megatron.names import published

__all__ = ["across_ranks_string", "text_of"]

_TITLES = {
    "max": "max time across ranks (ms)",
    "minmax": "(min, max) time across ranks (ms)",
    "all": "times across ranks (ms)",
}

Times = Mapping[str, Mapping[int, float]]
"""Name → rank → milliseconds."""


def text_of(times: Times, option: str, note: str = "") -> str | None:
    """Return the report; None where no timer has run. Ranks whose time is 0 did not run it, and are left out.

    Args:
        times: in milliseconds.
        option: `max`, `minmax` or `all`.
        note: stands in the title, where not all ranks are in it.
    """
    ran = {name: {rank: ms for rank, ms in by_rank.items() if ms > 0} for name, by_rank in times.items()}
    ran = {name: by_rank for name, by_rank in ran.items() if by_rank}
    if not ran:
        return None
    lines = [f"{_TITLES[option]}{note}:"]
    for name, by_rank in ran.items():
        if option == "all":
            lines.append(f"  {name}:")
            lines += [f"     rank {rank:2d}: {ms:.2f}" for rank, ms in sorted(by_rank.items())]
        else:
            low, high = min(by_rank.values()), max(by_rank.values())
            shown = f"{high:.2f}" if option == "max" else f"({low:.2f}, {high:.2f})"
            lines.append(f"    {f'{name} '.ljust(48, '.')}: {shown}")
    return "\n".join(lines)


def across_ranks_string(
    run: Run | str | PathLike[str],
    names: Iterable[str] | None = None,
    *,
    option: str = "minmax",
    step: int | None = None,
    world_size: int = 1,
) -> str | None:
    """Return the report over all ranks, as the service reduced it: reads the run's file, and waits for nobody.

    Not for the training loop: it reads a file. A step is there once it has closed.

    Args:
        run: a run whose service is on this host, or its folder.
        names: of timers, as they were made or as they are published; all that were written by default.
        option: `max`, `minmax` or `all`, the one `Timers` was made with.
        step: the newest that is there by default.
        world_size: where a timer is of fewer ranks, the title says of how many of so many; a late one amends the step.

    Returns:
        The text; None where nothing is there yet, or the run is that of a service elsewhere.
    """
    try:
        series = otel_ml.read(run)
    except OtelMLError:
        return None
    # `/count` is among the reductions of each of the three options, see `_REDUCTIONS` in timers.py.
    found = {match[1] for name in series if (match := re.fullmatch(r"(.+)-time/count", name))}
    asked = sorted(found) if names is None else names
    wanted = {name: f"{published(name)}-time" for name in asked if published(name) in found}
    steps = [max(series[name][0]) for name in wanted.values()]
    if not steps:
        return None
    at = max(steps) if step is None else step
    counts = [count for name in wanted.values() if (count := _value(series, f"{name}/count", at))]
    times = {name: _by_rank(series, timer, at, option) for name, timer in wanted.items()}
    return text_of(times, option, _how_many(counts, world_size))


def _how_many(counts: Collection[float], world_size: int) -> str:
    """Return what the title says of the ranks: a timer need not have run on each."""
    fewest, most = int(min(counts, default=0)), int(max(counts, default=0))
    if fewest >= world_size:
        return ""
    return f", {fewest} of {world_size} ranks" if fewest == most else f", {fewest} to {most} of {world_size} ranks"


def _by_rank(
    series: Mapping[str, tuple[list[int], list[float]]], name: str, step: int, option: str
) -> dict[int, float]:
    if option == "all":
        ranks = [key for key in series if key.startswith(f"{name}/rank_")]
        found = {int(key.rpartition("_")[2]): _value(series, key, step) for key in ranks}
    else:
        # Not ranks: two numbers whose smallest and largest text_of() shows.
        found = {0: _value(series, f"{name}/min", step), 1: _value(series, name, step)}
    return {rank: value * 1e3 for rank, value in found.items() if value is not None}


def _value(series: Mapping[str, tuple[list[int], list[float]]], name: str, step: int) -> float | None:
    steps, values = series.get(name, ([], []))
    return values[steps.index(step)] if step in steps else None
