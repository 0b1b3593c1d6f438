"""What is special about a step: corrections, who was missing, who took longest.

Who takes longest in a timer may be slow, or may wait for somebody else: one step alone does not tell. Findings do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from statistics import fmean

from otel_ml.quantities import seconds
from otel_ml_exporters.records import StepRecord

__all__ = ["Remarks"]

_RANK = re.compile(r"^(?P<base>.+)/rank_(?P<rank>\d+)$")
_TIMER = re.compile(r"(?:^|/)time/(?P<phase>.+)$")

_TOTAL = "step"
"""The timer that holds all others: it tells that a step was slow, not where."""

_RATIO = 1.5
"""How many times the mean the slowest rank must take, to be named."""

_EXPOSED = "exposed/"
"""Timers of the account of a step's time: what each adds, and who was in front."""

_LEAST_S = 0.005
"""Smaller differences are the machine's noise."""


class Remarks:
    """Remembers which ranks have series of their own, to name those that a step lacks."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, str], set[int]] = {}

    def of(self, record: StepRecord) -> list[str]:
        """Return short remarks; none for an ordinary step."""
        remarks = ["amended"] if record.amendment else []
        missing = self._missing(record)
        if record.writers_missing:
            remarks.append(f"{record.writers_missing} writer{'s' * (record.writers_missing > 1)} missing{missing}")
        longest = _longest(record.values)
        return remarks if longest is None else [*remarks, longest]

    def _missing(self, record: StepRecord) -> str:
        present = {int(match["rank"]) for name in record.values if (match := _RANK.match(name))}
        known = self._ranks.setdefault((record.role, record.axis), set())
        # A row without any series of a rank says nothing of who was there.
        gone = sorted(known - present) if present else []
        known |= present
        if not gone:
            return ""
        return f": rank{'s' * (len(gone) > 1)} {', '.join(map(str, gone))}"


def _longest(values: Mapping[str, float]) -> str | None:
    """Return who took longest in which timer, the one in which it cost most."""
    found = max(_standing_out(values), default=None)
    if found is None:
        return None
    _, phase, rank, longest_s = found
    return f"rank {rank} longest in {phase}: {seconds(longest_s)}"


def _standing_out(values: Mapping[str, float]) -> Iterator[tuple[float, str, int, float]]:
    """Yield (seconds that it costs, timer, rank, seconds) of each timer in which a rank stands out.

    Where the step has an account of its time, what a timer adds to the step counts: others wait as long elsewhere.
    """
    # Where a timer has both, each rank's own series count.
    for name, (rank, slowest, mean) in {**_by_extreme(values), **_by_rank(values)}.items():
        match = _TIMER.search(name)
        if not match or match["phase"] == _TOTAL or match["phase"].startswith(_EXPOSED):
            continue
        added = values.get(f"{name[: match.start('phase')]}{_EXPOSED}{match['phase']}", slowest)
        # Both: who takes long in a phase that others hide adds little to the step, and a phase may add much in which
        # nobody stands out.
        if min(slowest, added) > _RATIO * mean and min(slowest, added) - mean > _LEAST_S:
            yield added - mean, match["phase"], rank, slowest


def _by_extreme(values: Mapping[str, float]) -> Mapping[str, tuple[int, float, float]]:
    """Timer → (rank, slowest, mean) of those reduced by `max`, `mean` and `argmax`, in any order."""
    found = {}
    for name, rank in values.items():
        base = name.removesuffix("/argmax")
        # The first of several reductions has the plain name, whichever it is.
        slowest, mean = values.get(f"{base}/max", values.get(base)), values.get(f"{base}/mean", values.get(base))
        if base != name and slowest is not None and mean is not None and math.isfinite(rank):
            found[base] = (int(rank), slowest, mean)
    return found


def _by_rank(values: Mapping[str, float]) -> Mapping[str, tuple[int, float, float]]:
    """Timer → (rank, slowest, mean) of those reduced by `rank`."""
    ranks: dict[str, dict[int, float]] = {}
    for name, value in values.items():
        match = _RANK.match(name)
        if match:
            ranks.setdefault(match["base"], {})[int(match["rank"])] = value
    slowest = {base: max(times, key=lambda rank: times[rank]) for base, times in ranks.items()}
    return {base: (rank, ranks[base][rank], fmean(ranks[base].values())) for base, rank in slowest.items()}
