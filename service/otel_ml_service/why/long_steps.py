"""Steps that are far longer than a typical one, now and then: what they cost, what was in them, how often they come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from statistics import fmean, median

import numpy as np

from otel_ml.quantities import percent, seconds
from otel_ml_service.findings.phases import UNTIMED, is_pausing, is_waiting
from otel_ml_service.findings.wording import listed, ordinal, steps_text
from otel_ml_service.why.answer import CAUSED, Phase
from otel_ml_service.why.how_often import how_often, period, rows
from otel_ml_service.why.step_time import WARM_UP, StepTime, account
from otel_ml_service.why.unknown_steps import NO_TIMERS

__all__ = ["INSIDE", "LEAST_STEPS", "Grown", "LongSteps", "long_steps", "with_phases"]

INSIDE = "timers inside of it would tell more"

_NOTICED = 0.05
"""Of the time of all steps: less is not told."""

_SHORTEST, _TYPICAL = 0.05, 1 / 3
"""Quantiles between which typical steps scatter: of steps that alternate, the shorter ones are typical."""

_BEYOND, _LEAST = 8.0, 0.02
"""How often that scatter a step is longer, and how large it is at least, as a share."""

_MUCH, _RARE = 0.2, 0.05
"""Of the time of all steps, in so few of them: that is told first, whatever it is; of more it is how they scatter."""

LEAST_STEPS = 8
"""Fewer steps have no typical one."""

_LEVEL = 7
"""So many long ones in a row are another level: as many as a change of level takes."""

_MOST = 0.6
"""Of the steps: if more are long, these are the typical ones."""

_A_PART = 0.2
"""Of what a step is longer: a phase that grew by less is not told."""


_SMALL, _TOGETHER = 0.1, 0.05
"""Of the longest: steps that are longer by less are not told, if they have so little in all; nor are such phases."""


@dataclass(frozen=True, slots=True)
class Grown:
    """What a phase takes more in some long steps than in a typical one.

    Attributes:
        steps: which; of many, those whose spans were looked at.
        seconds: in each of them; `in_all_s` in all, also in those that were not looked at.
        rank: that alone takes longer in it; None where others do, too, or nobody knows.
    """

    phase: str
    steps: tuple[int, ...]
    seconds: float
    in_all_s: float
    rank: int | None = None

    @property
    def is_done_there(self) -> bool:
        """Whether its name says what was done, while training stood still."""
        return is_pausing(self.phase) and self.phase != UNTIMED

    def __str__(self) -> str:
        alone = "" if self.rank is None else f" (rank {self.rank} alone)"
        return f"+{seconds(self.seconds)} " + ("in no timer" if self.phase == UNTIMED else f"of {self.phase}{alone}")


@dataclass(frozen=True, slots=True)
class LongSteps:
    """Steps that are far longer than a typical one.

    Attributes:
        of_steps: step → seconds that it is longer.
        typical: the other steps; `typical_s` is how long they take.
        share: of the time of all steps that it is.
        steps: how many there are of both kinds.
        is_timed: whether there are timers at all.
        grown: what phases have of it, most first; empty where nothing tells, or none has a fifth.
        account: of the long steps, beside that of typical ones; `adds_up` where its phases do; `of_rank` as that of an
            answer.
    """

    axis: str
    of_steps: Mapping[int, float]
    typical: tuple[int, ...]
    typical_s: float
    share: float
    steps: int
    is_timed: bool
    grown: tuple[Grown, ...] = ()
    account: tuple[Phase, ...] = ()
    adds_up: bool = False
    of_rank: int | None = None

    @property
    def total_s(self) -> float:
        """All that they are longer."""
        return sum(self.of_steps.values())

    @property
    def longest(self) -> int:
        """The longest of them."""
        return max(self.of_steps, key=lambda step: self.of_steps[step])

    @property
    def longest_s(self) -> float:
        """How long that one takes."""
        return self.typical_s + self.of_steps[self.longest]

    @property
    def stands_out(self) -> bool:
        """Whether they are the first thing to say of a run: not of its first steps, nor of a few that chance made."""
        is_regular = any(period(one.steps) for one in self.grown) or self.every is not None
        # In a run of fewer than 60 steps, 3 are still few.
        is_rare = len(self.of_steps) <= max(_RARE * self.steps, 3)
        return not self.is_warm_up and (is_regular or self.is_caused or (self.share >= _MUCH and is_rare))

    @property
    def causes(self) -> list[Grown]:
        """What was done in them that a typical step does not do."""
        return [one for one in self.grown if one.is_done_there]

    @property
    def explained_s(self) -> float:
        """What goes with that, in all of them; 0 where phases do not add up."""
        return sum(one.in_all_s for one in self.causes) if self.adds_up else 0.0

    @property
    def explained(self) -> float:
        """Part of what they are longer that goes with that."""
        return min(self.explained_s / self.total_s, 1.0)

    @property
    def is_caused(self) -> bool:
        """Whether nearly all goes with it."""
        return self.explained >= CAUSED

    @property
    def is_warm_up(self) -> bool:
        """Whether they are the first ones of the run."""
        return max(self.of_steps) < min([*self.typical, *self.of_steps]) + WARM_UP

    @property
    def every(self) -> int | None:
        """Every how many steps they come; None where they come as they like."""
        return period(tuple(self.of_steps))

    @property
    def told(self) -> str:
        """How long a typical step is, how much the others are longer, in what, and how often they come."""
        return f"{seconds(self.typical_s)} each, but {self.how_many('them')}"

    @property
    def how_much(self) -> str:
        """How much how many of them take more."""
        return f"{len(self.of_steps):,} took {seconds(self.total_s)} more"

    def how_many(self, of: str) -> str:
        """Return how many of which steps take how much more, in what, and how often they come."""
        share = f"({percent(self.share)} of the time)"
        if len(self.of_steps) == 1:
            step = steps_text(self.longest, self.longest, self.axis)
            return f"{step} took {seconds(self.total_s)} more {share}{self._in_what}"
        many = f"{len(self.of_steps):,} of {of} took {seconds(self.total_s)} more in all"
        return f"{many} {share}: {self._what}"

    @property
    def told_of_one(self) -> str:
        """How long the only step in question is, instead of a typical one, and in what."""
        return f"{seconds(self.longest_s)} instead of {seconds(self.typical_s)}{self._in_what}"

    @property
    def _in_what(self) -> str:
        return f": {listed([str(one) for one in self.grown])}" if self.grown else ""

    @property
    def _what(self) -> str:
        steps = tuple(self.of_steps)
        if all(one.steps == steps for one in self.grown):
            each = listed([str(one) for one in self.grown]) or f"{seconds(self.total_s / len(steps))} each"
            return f"{each}{how_often(steps, self.axis)}"
        return listed([f"{one}{how_often(one.steps, self.axis)}" for one in self.grown])

    @property
    def cause(self) -> str:
        """What was done in them, or why nobody can tell; nobody is slow for it."""
        nobody = "nobody was found slow"
        if self.is_caused:
            done = listed([one.phase for one in self.causes])
            goes = "goes with that" if len(self.causes) == 1 else "goes with them"
            return f"Caused: {done}; {percent(self.explained)} of it {goes}, and {nobody}."
        most = self.grown[0] if self.grown else None
        if self.is_warm_up:
            first = f"it is the first {self.axis}" if len(self.of_steps) == 1 else f"these are the first {self.axis}s"
            return f"Cannot tell: {first}, in which programs compile, allocate and fill caches, and {nobody}."
        if most is None:
            return f"Cannot tell: no timer has a fifth of it, and {nobody}."
        if most.phase == UNTIMED:
            return "Cannot tell: what was done there is not timed, and nobody is slow for it."
        part = min(most.in_all_s / self.total_s, 1.0)
        but = ", where ranks wait for each other" if is_waiting(most.phase) else ""
        if most.rank is not None:
            return f"Cannot tell: {part:.0%} of it is in {most.phase} of rank {most.rank} alone; {INSIDE}."
        but = ", but without the spans of all ranks timers do not add up" if not self.adds_up else but
        return f"Cannot tell: {percent(part)} of it is in {most.phase}{but}, and {nobody}."

    @property
    def advice(self) -> str:
        """What is gained without it, or where to look."""
        longest = f"{self.axis} {self.longest:,}"
        if not self.is_timed:
            return NO_TIMERS
        if self.is_caused:
            these = f"these {self.axis}s are" if self.steps > 1 else "it is"
            return f"Without that {these} {seconds(self.total_s * self.explained)} shorter in all; look at {longest}."
        if self.grown and self.grown[0].phase == UNTIMED:
            return f'Put `with otel_ml.timed("checkpoint"):`, or what it is, around it; look at {longest}.'
        if self.every is not None:
            return f"Look for what the program does every {ordinal(self.every)} {self.axis}, such as {longest}."
        return f"Look at {longest}: the longest one, {seconds(self.longest_s)}."


def long_steps(time: StepTime, axis: str, steps: Sequence[int], beside: Iterable[int] = ()) -> LongSteps | None:
    """Return which of the steps are far longer than a typical one; None where they cost little, or are none or most.

    Args:
        time: of all of them.
        axis: of the steps.
        steps: that are in question.
        beside: others that tell what a typical step is.
    """
    known = sorted({*steps, *beside})
    if len(known) < LEAST_STEPS:
        return None
    lengths = np.fromiter(map(time.seconds.__getitem__, known), np.float64, len(known))
    # `lower`, so that both are lengths of steps: between two lengths that alternate, no step has the one in the middle.
    shortest, third = (float(value) for value in np.quantile(lengths, (_SHORTEST, _TYPICAL), method="lower"))
    limit = third + _BEYOND * max(third - shortest, _LEAST * third)
    typical = tuple(compress(known, (lengths <= limit).tolist()))
    typical_s = time.usual_s(typical)
    beyond = rows(compress(known, (lengths > limit).tolist()))
    # More in a row are another level, which is told as such.
    few = {step for row in beyond if len(row) < _LEVEL for step in row}
    of_steps = _worth_telling({step: time.seconds[step] - typical_s for step in steps if step in few})
    whole_s = sum(map(time.seconds.__getitem__, steps))
    if not sum(of_steps.values()) > _NOTICED * whole_s or (len(of_steps) > _MOST * len(steps) and len(steps) > 1):
        return None
    share = sum(of_steps.values()) / whole_s
    return LongSteps(axis, of_steps, typical, typical_s, share, len(steps), bool(time.phases))


def _worth_telling(of_steps: Mapping[int, float]) -> Mapping[int, float]:
    """Return the long steps without the least of them: what a busy host does to a step beside what a program does."""
    least = _SMALL * max(of_steps.values(), default=0.0)
    small = sum(longer for longer in of_steps.values() if longer < least)
    is_little = small < _TOGETHER * sum(of_steps.values())
    return {step: longer for step, longer in of_steps.items() if longer >= least} if is_little else of_steps


def with_phases(long: LongSteps, time: StepTime) -> LongSteps:
    """Return long steps with what phases have of them, as far as `time` has these steps."""
    known = [step for step in long.of_steps if step in time.seconds]
    usual = {name: _usual(values, long.typical, time) for name, values in time.phases.items()}
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for step in known:
        for name, more in _grown(step, long.of_steps[step], time, usual):
            found[name][step] = more
    # What all steps have whose spans are kept (the newest ones) is taken to be in the others, too.
    every = {name: tuple(long.of_steps if len(of) == len(known) else of) for name, of in found.items()}
    # What the steps have whose spans are kept stands for all of them: it is scaled up.
    of_each = len(long.of_steps) / max(len(known), 1)
    grown = [Grown(name, every[name], fmean(of.values()), sum(of.values()) * of_each) for name, of in found.items()]
    large = sorted((one for one in grown if one.in_all_s > _TOGETHER * long.total_s), key=lambda one: -one.in_all_s)
    phases = account(time, known, [step for step in long.typical if step in time.seconds])
    adds_up = time.adds_up and bool(known)
    return replace(long, grown=tuple(large), account=phases, adds_up=adds_up, of_rank=time.of_rank)


def _usual(values: Mapping[int, float], typical: Iterable[int], time: StepTime) -> float:
    return median([values.get(step, 0.0) for step in typical if step in time.seconds] or [0.0])


def _grown(step: int, longer_s: float, time: StepTime, usual: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield what grew in a step; of timers inside of each other the one that a typical step has least of."""
    more = {name: values.get(step, 0.0) - usual[name] for name, values in time.phases.items()}
    large = {name: by for name, by in more.items() if by >= _A_PART * longer_s}
    if time.adds_up:
        yield from large.items()
        return
    for name, by in large.items():
        # A timer around the one that grew grew as much, and a typical step has more of it.
        if not any(usual[one] < usual[name] and of_it >= CAUSED * by for one, of_it in large.items()):
            yield name, by
    # No timer has a fifth of it; what all of them have together is not in no timer.
    rest_s = longer_s - sum(by for by in more.values() if by > 0)
    if time.phases and not large and rest_s >= longer_s / 2:  # else many timers have a little of it each
        yield UNTIMED, rest_s
