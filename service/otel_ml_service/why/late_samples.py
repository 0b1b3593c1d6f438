"""A producer that gives fewer samples a second than before: whoever waits for samples takes longer for it.

Who trains on what others make takes as long as its samples take, as far as it waits. How many each producer gave is
counted by links (`consumed()`), so what a step would take with as many a second as before is known for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from otel_ml.quantities import figure, percent, seconds
from otel_ml_service.findings.phases import UNTIMED, accuses, is_pausing, is_routed
from otel_ml_service.why.answer import CAUSED, Evidence
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.producers import Producer, producers_of
from otel_ml_service.why.step_time import StepTime

__all__ = ["LateSamples", "late_samples", "longer_wait", "rate"]

_AS_BEFORE = 0.9
"""Of the samples a second that the other producers gave before: else it is whoever takes them that is slower."""


class LateSamples(NamedTuple):
    """Whose samples come later.

    Attributes:
        before, after: samples a second.
        phase: in which the steps wait for samples; `grown_s` longer than before.
        saved_s: seconds a step that would be saved with as many as before, `part` of the effect.
    """

    producer: Producer
    before: float
    after: float
    phase: str
    grown_s: float
    saved_s: float
    part: float

    @property
    def cause(self) -> str:
        """The second sentence of an answer."""
        return (
            f"Caused: {self.producer.name} gave {figure(self.after)} samples a second instead of "
            f"{figure(self.before)}, and the others as many as before; {percent(self.part)} of it goes with that."
        )

    @property
    def without_it(self) -> str:
        """The third sentence of an answer."""
        return f"With as many of {self.producer.name} as before these steps are {seconds(self.saved_s)} shorter."

    @property
    def evidence(self) -> Evidence:
        """What shows that the steps wait for samples."""
        return Evidence("link", None, f"{self.phase} took {seconds(self.grown_s)} longer: the steps wait for samples")


def late_samples(
    facts: RunFacts, place: Place, time: StepTime, steps: Sequence[int], usual: Sequence[int]
) -> LateSamples | None:
    """Return the producer whose samples make `steps` longer than `usual` ones; None where it is not a single one."""
    producers = producers_of(facts, place, "") if steps and usual else []
    if len(producers) < 2:
        return None
    wait = longer_wait(time, steps, usual)
    if wait is None:
        return None
    phase, grown, effect = wait
    before, after = ([rate(one, time, of) for one in producers] for of in (usual, steps))
    found = []
    for one, old, new in zip(producers, before, after, strict=True):
        others_new = sum(after) - new
        if new < old and others_new >= _AS_BEFORE * (sum(before) - old) and others_new + old > 0:
            # A step takes a number of samples: with `old` of this one a second instead of `new` it has them so much
            # sooner.
            saved = _mean(time.seconds, steps) * (1 - sum(after) / (others_new + old))
            found.append(LateSamples(one, old, new, phase, grown, min(saved, effect), min(saved / effect, 1.0)))
    worst = max(found, key=lambda late: late.part, default=None)
    return worst if worst is not None and worst.part >= CAUSED else None


def longer_wait(time: StepTime, steps: Sequence[int], usual: Sequence[int]) -> tuple[str, float, float] | None:
    """Return a phase of waiting that has nearly all of what `steps` are longer, how much, and how much they are.

    None where there is none, or they are not longer.
    """
    effect = _mean(time.seconds, steps) - _mean(time.seconds, usual)
    grown = {phase: _mean(values, steps) - _mean(values, usual) for phase, values in time.phases.items()}
    # "" where no phase may be one of waiting: that one grew by nothing.
    phase = max(filter(_may_wait, grown), key=lambda one: grown[one], default="")
    return None if effect <= 0 or grown.get(phase, 0.0) < CAUSED * effect else (phase, grown[phase], effect)


def _may_wait(phase: str) -> bool:
    # What loads data works by its name, and may wait for it; what is in no timer may be anything.
    is_work = accuses(phase) or is_routed(phase)
    return not is_work or (phase != UNTIMED and is_pausing(phase))


def _mean(values: Mapping[int, float], steps: Sequence[int]) -> float:
    return fmean(values.get(step, 0.0) for step in steps)


def rate(one: Producer, time: StepTime, steps: Sequence[int]) -> float:
    """Return how many samples of a producer steps took a second."""
    took = sum(time.seconds[step] for step in steps)
    return sum(one.samples.get(step, 0.0) for step in steps) / took if took > 0 else 0.0
