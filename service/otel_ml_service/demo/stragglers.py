"""Finds who was slow, in which phase and when, from three series that any job can record of a timer.

`otel_ml.define_metric("time/*", within="sum", reduce=("max", "mean", "argmax"))` publishes, at every step, the slowest
rank's time, the mean over ranks, and which rank was the slowest. That is enough, at any number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from otel_ml_service.stored_runs.run_history import History, Series

__all__ = ["Straggler", "straggler"]

TOTAL = "time/step"
"""The timer that holds all others: it tells that a step was slow, not where."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """A stretch of steps in which one rank was slower than the others in one phase.

    Attributes:
        phase: name of the timer.
        first: first step of the stretch; `last` is in it too.
        extra_s: how much longer than the others it took, per step, on average.
        cost_s: the same, over the whole stretch: with synchronous training the job lost it.
        share: `cost_s` of the time of all steps of the run, 0…1.
        waited_in: the phase in which the other ranks' time grew the most meanwhile, or None.
    """

    phase: str
    rank: int
    first: int
    last: int
    extra_s: float
    cost_s: float
    share: float
    waited_in: str | None


def straggler(run: History, ranks: int) -> Straggler | None:
    """Return the costliest stretch of the run; None where ranks were not timed, or none stands out."""
    phases = {
        name: phase for name in _phases(run) if name != TOTAL and (phase := _extra(run, name, ranks))
    }  # fmt: skip
    best = max((_costliest(name, phase) for name, phase in phases.items()), default=None, key=lambda found: found[0])
    if best is None or best[0] <= 0:
        return None
    _, name, rank, first, last = best
    late = {
        step: seconds for step, (culprit, seconds) in phases[name].items() if first <= step <= last and culprit == rank
    }
    # One very slow step far from the others must not stretch it: now every step has one vote, slow or not.
    slow = {step for step, seconds in late.items() if seconds >= median(late.values()) / 2}
    _, first, last = _largest_sum(
        (step, 1.0 if step in slow else -1.0) for step in phases[name] if first <= step <= last
    )
    extra = [seconds for step, seconds in late.items() if first <= step <= last]
    total = sum(run.get(TOTAL).values())
    cost = sum(extra)
    return Straggler(
        phase=name.removeprefix("time/"),
        rank=rank,
        first=first,
        last=last,
        extra_s=cost / (last - first + 1),
        cost_s=cost,
        share=cost / total if total else 0.0,
        waited_in=_waited_in(run, [other for other in phases if other != name], first, last),
    )


def _phases(run: History) -> list[str]:
    names = (key.name for key in run.series)
    return sorted(
        name.removesuffix("/argmax") for name in names if name.startswith("time/") and name.endswith("/argmax")
    )


def _extra(run: History, name: str, ranks: int) -> Mapping[int, tuple[int, float]]:
    """Return step → (slowest rank, seconds it took longer than the mean of the others)."""
    slowest, mean, culprit = run.get(name), run.get(f"{name}/mean"), run.get(f"{name}/argmax")
    if ranks < 2:
        return {}
    return {
        step: (int(culprit[step]), (slowest[step] - mean[step]) * ranks / (ranks - 1))
        for step in sorted(slowest.keys() & mean.keys() & culprit.keys())
    }


def _costliest(name: str, phase: Mapping[int, tuple[int, float]]) -> tuple[float, str, int, int, int]:
    """Return (score, phase, rank, first, last) of the stretch with the largest sum (Kadane's algorithm).

    A step counts for its slowest rank and against all others; what is usual in this phase is taken off, so that
    the scatter of a healthy job ends a stretch.
    """
    usual = 2 * median(seconds for _, seconds in phase.values())
    found = []
    for rank in {rank for rank, _ in phase.values()}:
        scores = [
            (step, (seconds if culprit == rank else -seconds) - usual) for step, (culprit, seconds) in phase.items()
        ]
        found.append((*_largest_sum(scores), rank))
    score, first, last, rank = max(found)
    return score, name, rank, first, last


def _largest_sum(scores: Iterable[tuple[int, float]]) -> tuple[float, int, int]:
    """Return (sum, first, last) of the contiguous stretch with the largest sum.

    Examples:
        >>> _largest_sum([(0, -1.0), (1, 3.0), (2, -1.0), (3, 2.0), (4, -5.0)])
        (4.0, 1, 3)
    """
    best = (float("-inf"), 0, 0)
    running, start = 0.0, 0
    for step, score in scores:
        if running <= 0:
            running, start = 0.0, step
        running += score
        best = max(best, (running, start, step), key=lambda stretch: stretch[0])
    return best


def _waited_in(run: History, phases: Iterable[str], first: int, last: int) -> str | None:
    def growth(name: str) -> float:
        mean: Series = run.get(f"{name}/mean")
        inside = [seconds for step, seconds in mean.items() if first <= step <= last]
        outside = [seconds for step, seconds in mean.items() if not first <= step <= last]
        return fmean(inside) - median(outside) if inside and outside else 0.0

    name = max(phases, key=growth, default=None)
    return name.removeprefix("time/") if name is not None and growth(name) > 0 else None
