"""All producers give fewer samples a second: whoever waits for samples takes longer, and none of them is the one.

That they give fewer follows from longer steps of who takes them, so it shows nothing by itself. It does where the steps
wait for samples, links tell whose (`consumed()`), and the producers' own timers are as much longer at that time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from otel_ml.quantities import figure, percent, seconds
from otel_ml_service.findings.phases import UNTIMED, accuses
from otel_ml_service.findings.wording import plural
from otel_ml_service.why.answer import CAUSED, Evidence
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.late_samples import longer_wait, rate
from otel_ml_service.why.producers import Producer, producers_of
from otel_ml_service.why.step_time import StepTime, step_time

__all__ = ["FewerSamples", "fewer_samples", "waits_for"]

_FEWER = 0.9
"""Of the samples a second that a producer gave before: it gives fewer."""

_IDLE = "rl/loop/idle"
"""The timer of `rl.idle()`: waiting for samples, also where many ranks wait for each other."""

_FEW = 4
"""Steps of a producer at a time that tell how long they take."""


class _Grown(NamedTuple):
    """The timer of producers that grew as much as their steps, and what it took before."""

    phase: str
    before_s: float
    after_s: float


class _Fewer(NamedTuple):
    """Who gave fewer samples.

    Attributes:
        producers: all of them.
        before, after: samples a second of all together.
    """

    producers: Sequence[Producer]
    before: float
    after: float

    @property
    def who(self) -> str:
        first, roles = self.producers[0], {one.role for one in self.producers}
        if len(self.producers) == 1:
            return first.name
        many = plural(len(self.producers), first.role if len(roles) == 1 else "producer")
        return f"both {many.removeprefix('2 ')}" if len(self.producers) == 2 else f"all {many}"

    @property
    def rates(self) -> str:
        return f"{figure(self.after)} a second instead of {figure(self.before)}"


class FewerSamples(NamedTuple):
    """Steps that wait for samples of producers that all take longer.

    Attributes:
        phase: in which the steps wait for samples; `grown_s` longer than before, `part` of the effect.
        own: what grew of the producers' own steps.
    """

    fewer: _Fewer
    phase: str
    grown_s: float
    part: float
    own: _Grown

    @property
    def cause(self) -> str:
        """The second sentence of an answer."""
        took = f"took {seconds(self.own.after_s)} in {self.own.phase} instead of {seconds(self.own.before_s)}"
        they = "it" if len(self.fewer.producers) == 1 else "they"
        return (
            f"Caused: {self.fewer.who} gave fewer samples, {self.fewer.rates}, and {they} {took}; "
            f"{percent(self.part)} of it goes with that."
        )

    @property
    def without_it(self) -> str:
        """The third sentence of an answer."""
        return f"With as many as before these steps are {seconds(self.grown_s)} shorter."

    @property
    def evidence(self) -> Evidence:
        """What shows that the steps wait for samples."""
        return Evidence("link", None, f"{self.phase} took {seconds(self.grown_s)} longer: the steps wait for samples")


def fewer_samples(
    facts: RunFacts, place: Place, time: StepTime, steps: Sequence[int], usual: Sequence[int]
) -> FewerSamples | None:
    """Return that all producers are slower, where `steps` are longer than `usual` ones for it; None elsewhere."""
    wait, fewer = _wait(time, steps, usual), _fewer(facts, place, time, steps, usual)
    own = _own(facts, place, fewer, steps, usual) if wait is not None and fewer is not None else None
    if wait is None or fewer is None or own is None:
        return None
    return FewerSamples(fewer, wait.phase, wait.grown_s, min(wait.grown_s / wait.effect_s, 1.0), own)


def waits_for(facts: RunFacts, place: Place, time: StepTime, steps: Sequence[int], usual: Sequence[int]) -> str:
    """Return for whom steps wait, as far as it is known, and what would tell more; nothing where they do not."""
    known, before = ([step for step in of if step in time.seconds] for of in (steps, usual))
    wait = _wait(time, known, before)
    if wait is None or accuses(wait.phase):
        return ""
    fewer = _fewer(facts, place, time, known, before)
    if fewer is not None:
        is_timed = any(step_time(facts, one).phases for one in _places_of(facts, place, fewer.producers))
        them = "no timer of theirs shows" if is_timed else "timers of theirs would tell"
        return f"where it waits for samples, and {fewer.who} gave fewer, {fewer.rates}: {them} whether they were slower"
    is_alone = all(one.role == place.role for one in facts.places)
    if is_alone or producers_of(facts, place, ""):
        return ""
    return "where it waits; `otel_ml.consumed(contexts)` would tell for whose samples"


class _Wait(NamedTuple):
    phase: str
    grown_s: float
    effect_s: float


def _wait(time: StepTime, steps: Sequence[int], usual: Sequence[int]) -> _Wait | None:
    """Return the phase in which steps wait for somebody else than their peers; None where there is none."""
    wait = longer_wait(time, steps, usual) if steps and usual else None
    ranks = {rank for of_phase in time.ranks.values() for rank in of_phase.values()}
    # Where ranks meet, a phase of waiting may be as long for a slow one among them, whatever samples come.
    is_for_peers = wait is not None and len(ranks) > 1 and wait[0] != _IDLE
    return None if wait is None or is_for_peers else _Wait(*wait)


def _fewer(facts: RunFacts, place: Place, time: StepTime, steps: Sequence[int], usual: Sequence[int]) -> _Fewer | None:
    producers = [one for one in producers_of(facts, place, "") if rate(one, time, usual) > 0] if usual else []
    before, after = ([rate(one, time, of) for one in producers] for of in (usual, steps))
    # One that gives as many as before is enough: it is not all of them then, and `late_samples` looks for a single one.
    if not producers or any(new > _FEWER * old for old, new in zip(before, after, strict=True)):
        return None
    return _Fewer(producers, sum(before), sum(after))


def _places_of(facts: RunFacts, place: Place, producers: Sequence[Producer]) -> list[Place]:
    """Return where producers have steps; `consumed()` publishes the first letters of their role."""
    roles = tuple({one.role for one in producers})
    # `startswith` takes any of several.
    return [one for one in facts.places if one.role != place.role and one.role.startswith(roles)]


def _own(facts: RunFacts, place: Place, fewer: _Fewer, steps: Sequence[int], usual: Sequence[int]) -> _Grown | None:
    """Return which timer of work made the producers' own steps longer; None where none shows it."""
    found = (_grown(facts, one, _passed(facts, place, usual), _passed(facts, place, steps))
             for one in _places_of(facts, place, fewer.producers))  # fmt: skip
    return next((one for one in found if one is not None), None)


def _passed(facts: RunFacts, place: Place, steps: Sequence[int]) -> tuple[float, float]:
    times = [facts.times[place][step] for step in steps if step in facts.times.get(place, {})]
    return min(times, default=0.0), max(times, default=0.0)


def _grown(facts: RunFacts, place: Place, before: tuple[float, float], after: tuple[float, float]) -> _Grown | None:
    """Return the timer of work that has nearly all of what steps of a place are longer."""
    times = facts.times.get(place, {})
    # The producers' own steps of that time: their numbers have nothing to do with those of who takes samples.
    old, new = ([step for step in sorted(times) if first < times[step] <= last] for first, last in (before, after))
    # By the clock: producers need not time their steps.
    lasted = {step: times[step] - times[earlier] for earlier, step in pairwise(sorted(times))}
    if min(len(old), len(new)) < _FEW:
        return None
    longer_s = _middle(lasted, new) - _middle(lasted, old)
    time = step_time(facts, place)
    grown = {
        phase: _Grown(phase, _middle(values, old), _middle(values, new))
        for phase, values in time.phases.items()
        if accuses(phase) and phase != UNTIMED
    }
    most = max(grown.values(), key=lambda one: one.after_s - one.before_s, default=None)
    is_shown = most is not None and longer_s > 0 and most.after_s - most.before_s >= CAUSED * longer_s
    return most if is_shown else None


def _middle(values: Mapping[int, float], steps: Sequence[int]) -> float:
    return median(values.get(step, 0.0) for step in steps)
