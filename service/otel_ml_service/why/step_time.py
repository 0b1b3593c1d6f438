"""How long each step of a role took, and what its phases have of it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean

import numpy as np
import numpy.typing as npt

from otel_ml.wire.reductions import row_of
from otel_ml_service.findings.whose_account import account_rank
from otel_ml_service.stored_runs.run_history import ascending
from otel_ml_service.why.answer import Phase
from otel_ml_service.why.facts import Place, RunFacts

__all__ = [
    "WARM_UP",
    "WORTH_TIMING_S",
    "StepTime",
    "account",
    "calm_steps",
    "step_time",
    "usual_steps",
    "without_pauses",
]

Values = Mapping[int, float]

_LONGEST = 1e9
"""Seconds from which a value, NaN included, is not a duration; ranks are below it, too."""

_USUAL = 64
"""Steps before that others are compared with."""

_MOST = 0.5
"""Part of the steps that have to have an account: of fewer, times would be compared with those of other steps."""

_FEW = 8
"""Fewer are nothing to compare with."""

WARM_UP = 3
"""First steps that are never usual: they compile, allocate, fill caches."""

_PAUSE = 10.0
"""Scatters beyond which a step is a pause."""

WORTH_TIMING_S = 1e-4
"""A step: what is in no timer and shorter than that is the program between two lines."""

_IN_A_ROW = 4
"""So many are no longer a pause: as many as make a finding."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """What is known of the time of steps.

    Attributes:
        source: `account`: phases add up to the slowest rank's step; `timer`: steps were timed, and phases overlap where
            ranks wait for each other; `clock`: nothing was timed, this is from the end of one step to that of the next;
            `path`: phases add up to the longest path through spans (`step_paths.py`), of some steps.
        seconds: step → seconds.
        phases: name → step → seconds.
        ranks: name → step → the rank at the front, or the slowest one.
        is_alone: whether they are of one rank, which has no peers.
    """

    source: str
    seconds: Values
    phases: Mapping[str, Values]
    ranks: Mapping[str, Values]
    is_alone: bool = False

    @property
    def adds_up(self) -> bool:
        """Whether phases add up to the step."""
        return self.source in {"account", "path"}

    def usual_s(self, steps: Sequence[int]) -> float:
        """Return the median of the seconds of some steps."""
        return float(np.median(self._of(steps)))

    def scatter_s(self, steps: Sequence[int]) -> float:
        """Return by how much these steps differ: 1.4826 median deviations, the standard one of normal noise."""
        seconds = self._of(steps)
        return float(1.4826 * np.median(np.abs(seconds - np.median(seconds))))

    def _of(self, steps: Sequence[int]) -> npt.NDArray[np.float64]:
        return np.fromiter(map(self.seconds.__getitem__, steps), np.float64, len(steps))

    @property
    def of_rank(self) -> int | None:
        """Whose account it is, where phases take turns; None where it is that of all ranks, or none."""
        return account_rank(self.ranks) if self.source == "account" else None


def step_time(facts: RunFacts, place: Place, first: float = -math.inf, last: float = math.inf) -> StepTime:
    """Return the times of a place's steps, from the best there is; empty ones where there is nothing.

    That has some of the steps `first` to `last`: the last ones of a job whose ranks were killed have no account.
    """
    every = facts.once(_known_times, place)
    have = (one for one in every if any(first <= step <= last for step in one.seconds))
    if (known := next(have, None)) is not None:
        return known
    # Nothing has these steps: the best source that has any says how long others took.
    return next((one for one in every if one.seconds), every[-1])


def _known_times(facts: RunFacts, place: Place) -> list[StepTime]:
    """Return the times of steps from each source, the best one first; the last one may be empty."""
    return list(_sources(facts, place))


def _sources(facts: RunFacts, place: Place) -> Iterator[StepTime]:
    exposed = _named(facts, place, "time/exposed/")
    phases = {name: values for name, values in exposed.items() if not name.endswith("/rank")}
    account = _total(phases.values())
    if len(account) > _MOST * len(facts.times.get(place, {})):
        ranks = {name: exposed.get(f"{name}/rank", {}) for name in phases}
        yield StepTime("account", account, phases, ranks)
    timers = _named(facts, place, "time/")
    phases = {name: values for name, values in timers.items() if _is_phase(name, timers)}
    ranks = {name: timers.get(f"{name}/argmax", {}) for name in phases}
    # Timers are `sum>max`, so these are the slowest rank's; which rank that is, `argmax` says where it is asked for.
    yield StepTime("timer", timers.get("step", {}), phases, ranks)
    yield StepTime("clock", _between(facts.times.get(place, {})), phases, ranks)


def _named(facts: RunFacts, place: Place, prefix: str) -> dict[str, Values]:
    whole = place.prefix + prefix
    series = facts.history.series
    return {
        key.name.removeprefix(whole): {
            step: value for step, value in ascending(series[key]).items() if 0 <= value < _LONGEST
        }
        for key in list(series)
        if key.axis == place.axis and key.name.startswith(whole)
    }


def _is_phase(name: str, timers: Iterable[str]) -> bool:
    return name != "step" and not name.startswith("exposed/") and not _is_further(name, timers)


def _is_further(name: str, timers: Iterable[str]) -> bool:
    base, _, last = name.rpartition("/")
    # `forward/max`, `forward/rank_3` are further values of `forward`; `forward/attention` is a timer of its own.
    return base in timers and (row_of(last) is not None or re.fullmatch(r"rank_\d+", last) is not None)


def _total(phases: Iterable[Values]) -> Values:
    total: dict[int, float] = {}
    for values in phases:
        for step, value in values.items():
            total[step] = total.get(step, 0.0) + value
    return dict(sorted(total.items()))


def _between(times: Values) -> Values:
    steps = pairwise(sorted(times))
    return {step: took for before, step in steps if 0 <= (took := times[step] - times[before]) < _LONGEST}


def usual_steps(time: StepTime, first: int, last: int, not_in: Sequence[tuple[int, int]]) -> list[int]:
    """Return the steps that `first` to `last` are compared with: the 64 before, else those after, without `not_in`.

    Fewer than 8 are none.
    """
    calm = sorted(time.seconds)[WARM_UP:]
    for begin, end in not_in:
        calm = [step for step in calm if not begin <= step <= end]
    before = [step for step in calm if step < first][-_USUAL:]
    after = [step for step in calm if step > last][:_USUAL]
    return before if len(before) >= _FEW else after if len(after) >= _FEW else []


def without_pauses(time: StepTime, steps: Sequence[int]) -> list[int]:
    """Return the steps without those that are far longer than the others, but for 4 and more in a row."""
    calm, kept = set(calm_steps(time, steps)), list[int]()
    for is_calm, group in groupby(steps, key=calm.__contains__):
        members = list(group)
        kept += members if is_calm or len(members) >= _IN_A_ROW else []
    return kept


def calm_steps(time: StepTime, steps: Sequence[int]) -> list[int]:
    """Return the steps without any that are far longer than the others."""
    if len(steps) < _FEW:
        return list(steps)
    usual = time.usual_s(steps)
    scatter = max(time.scatter_s(steps), usual / 50)  # steps that are all alike vary by 2 % yet
    longest = usual + _PAUSE * scatter
    return [step for step in steps if time.seconds[step] <= longest]


def account(time: StepTime, steps: Sequence[int], usual: Sequence[int]) -> tuple[Phase, ...]:
    """Return the phases of `steps` or `usual`, what changed most first; without `usual` the longest first."""
    whole = sum(time.seconds[step] for step in steps)
    found = [_phase(name, time, steps, usual, whole) for name in time.phases]
    return tuple(sorted((phase for phase in found if phase.seconds > 0 or (phase.usual_s or 0.0) > 0), key=_grown))


def _phase(name: str, time: StepTime, steps: Sequence[int], usual: Sequence[int], whole: float) -> Phase:
    values, ranks = time.phases[name], time.ranks.get(name, {})
    fronts = Counter(int(ranks[step]) for step in steps if step in ranks)
    rank = max(fronts, key=lambda one: fronts[one], default=None)
    spent = sum(values.get(step, 0.0) for step in steps)
    before = fmean(values.get(step, 0.0) for step in usual) if usual else None
    share = spent / whole if whole > 0 else 0.0
    return Phase(
        name, spent / max(len(steps), 1), before, share, rank, fronts[rank] if rank is not None else 0, len(steps)
    )


def _grown(phase: Phase) -> tuple[float, float]:
    return -abs(phase.seconds - (phase.usual_s or 0.0)), -phase.seconds
