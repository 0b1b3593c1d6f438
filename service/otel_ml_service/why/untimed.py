"""What no timer has of steps, and in which of them that is much more than usual: a pause in the body of a loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from statistics import fmean, median

import numpy as np

from otel_ml.quantities import percent, seconds
from otel_ml_exporters.records import Span
from otel_ml_service.findings.nesting import BESIDE, of_steps, parents_of
from otel_ml_service.findings.phases import STEP, UNTIMED
from otel_ml_service.findings.wording import listed
from otel_ml_service.why.answer import Evidence
from otel_ml_service.why.between_steps import between_steps
from otel_ml_service.why.counted_twice import passed_s
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.how_often import regularly
from otel_ml_service.why.step_time import WORTH_TIMING_S, StepTime

__all__ = ["Untimed", "in_no_timer", "untimed"]

_NOTICED = 0.05
"""Of the time of the steps: less is not told."""

_OF_ALL_STEPS = ("account", "timer", "clock")
"""Sources of times that have every step, not only some."""

_FEW = 0.2
"""Of the steps: more of them are told as what is usual."""

_LOOKED_AT = 4
"""Newest steps whose spans tell which timers are inside of others."""


@dataclass(frozen=True, slots=True)
class Untimed:
    """Time within steps that no timer has.

    Attributes:
        axis: of the steps.
        share: of their time.
        of_steps: step → seconds.
    """

    axis: str
    share: float
    of_steps: Mapping[int, float]

    @property
    def how_much(self) -> str:
        """How much it is, and in which steps it is much more than usual."""
        if len(self.of_steps) == 1:
            return f"{seconds(self.total_s)} ({percent(self.share)}) of {self.axis} {self.longest:,} is in no timer"
        return f"{seconds(self.total_s)} ({percent(self.share)} of the time) is in no timer: {self._where}"

    @property
    def _where(self) -> str:
        usual, longest = seconds(median(self.of_steps.values())), self._longest()
        if not longest:
            return f"{usual} a {self.axis}"
        each, plural = ("", "") if len(longest) == 1 else (" each", "s")
        where = listed([f"{step:,}" for step in longest], 3)
        mean = seconds(fmean(self.of_steps[step] for step in longest))
        return f"{mean}{each} in {self.axis}{plural} {where}{regularly(longest, self.axis)}, usually {usual}"

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum(self.of_steps.values())

    @property
    def longest(self) -> int:
        """The step that has most."""
        return max(self.of_steps, key=self.of_steps.__getitem__)

    @property
    def advice(self) -> str:
        """What makes the next run tell more."""
        name = "checkpoint" if self._longest() else "forward"
        return f'Put `with otel_ml.timed("{name}"):`, or what it is, around it; look at {self.axis} {self.longest:,}.'

    def _longest(self) -> list[int]:
        """Return the steps that have at least half as much as the one that has most, if they are few."""
        most = max(self.of_steps.values())
        found = [step for step, of_it in self.of_steps.items() if of_it >= most / 2]
        return found if len(found) <= _FEW * len(self.of_steps) else []


def untimed(facts: RunFacts, place: Place, time: StepTime, steps: Iterable[int]) -> Untimed | None:
    """Return what no timer has of steps; None where that is little, nothing was timed, or nobody knows.

    Where there is no account of each step, it is what the step is longer than its timers, those apart that are inside
    of others or run on another thread. Without spans, that say so, and where timers overlap, that is the least that it
    can be. Its share is of the time that passed: what others wait in the step after for a rank is the same time. Where
    steps were not timed either, they last from the end of one to that of the next, a restart apart.
    """
    restarts = {step for step, _ in facts.restarts.get(place, ())} if time.source == "clock" else set()
    known = [step for step in steps if step in time.seconds and step not in restarts]
    if time.source not in _OF_ALL_STEPS or not time.phases or not known:
        return None
    of_steps = _in_account(time, known) if time.source == "account" else _beyond_timers(facts, place, time, known)
    whole_s = passed_s({step: time.seconds[step] for step in known}, facts.times.get(place, {}))
    if not sum(of_steps.values()) > max(_NOTICED * whole_s, WORTH_TIMING_S * len(of_steps)):
        return None
    return Untimed(place.axis, sum(of_steps.values()) / whole_s, of_steps)


def _in_account(time: StepTime, steps: Iterable[int]) -> dict[int, float]:
    values = time.phases.get(UNTIMED, {})
    return {step: values.get(step, 0.0) for step in steps}


def _beyond_timers(facts: RunFacts, place: Place, time: StepTime, steps: Sequence[int]) -> dict[int, float]:
    other = _inside_or_elsewhere(facts, place, steps)
    timed = np.zeros(len(steps))
    for name, values in time.phases.items():
        if name not in other:
            timed += np.fromiter(map(values.get, steps, repeat(0.0)), np.float64, len(steps))
    whole = np.fromiter(map(time.seconds.__getitem__, steps), np.float64, len(steps))
    return dict(zip(steps, np.maximum(whole - timed, 0.0).tolist(), strict=True))


def _inside_or_elsewhere(facts: RunFacts, place: Place, steps: Sequence[int]) -> set[str]:
    """Return the timers that are inside of others, or beside them and not begun in the step."""
    newest = sorted(steps)[-_LOOKED_AT:]
    of_rank: dict[int, list[Span]] = defaultdict(list)
    for span in facts.spans_of_steps(place, newest[0], newest[-1]):
        if (span.role, span.axis) == place:
            of_rank[span.rank].append(span)
    if not of_rank:
        return set()
    # One rank stands for all: they run one program.
    spans = of_rank[min(of_rank)]
    begun = of_steps(spans)
    begun_in_step = {span.name for span in spans if span.span_id in begun}
    parents = parents_of(spans)
    return {
        name for name, parent in parents.items() if parent != STEP and not (parent == BESIDE and name in begun_in_step)
    }


def in_no_timer(facts: RunFacts, place: Place, time: StepTime, steps: Sequence[int]) -> list[Evidence]:
    """Return what passed between steps, which the account of them does not have, and what no timer has of them."""
    between, within = between_steps(facts, place, time, steps), untimed(facts, place, time, steps)
    return [
        *([] if between is None else [Evidence("state", between.longest, between.passed)]),
        *([] if within is None else [Evidence("state", within.longest, within.how_much)]),
    ]
