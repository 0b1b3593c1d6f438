"""Why steps took as long as they did: all of them, or some that are far longer now and then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from otel_ml.quantities import seconds
from otel_ml_service.findings.wording import steps_text
from otel_ml_service.why.answer import CAUSED, Answer, Look
from otel_ml_service.why.costliest_steps import NOTICED, found_at
from otel_ml_service.why.counted_twice import counted_twice
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.long_steps import LongSteps, long_steps, with_phases
from otel_ml_service.why.longer_and_longer import told_to_grow
from otel_ml_service.why.ranks_in_phases import alone_in
from otel_ml_service.why.slow_steps import explain_steps, whose
from otel_ml_service.why.step_paths import by_paths
from otel_ml_service.why.step_time import StepTime, calm_steps, step_time, usual_steps

__all__ = ["growing", "long_steps_of", "steps_answer", "told_with"]


def steps_answer(facts: RunFacts, place: Place, first: int, last: int) -> Answer:
    """Return why the steps `first` to `last` of a place took as long as they did.

    Where nobody was found slow, it is about those that are far longer than most, or that they take longer and longer,
    whichever costs more.
    """
    answer = explain_steps(facts, place, first, last)
    long = long_steps_of(facts, place, first, last)
    told = [] if long is None else [told_with(long, answer, facts, place)]
    told += [] if (grown := growing(facts, place, answer)) is None else [grown]
    return max(told, key=lambda one: one.effect or 0.0, default=answer)


def growing(facts: RunFacts, place: Place, answer: Answer) -> Answer | None:
    """Return the answer about steps that take longer and longer; None where they do not, or somebody was found."""
    if answer.first is None or answer.last is None or _is_somebody_found(facts, place, answer.first, answer.last):
        return None
    return told_to_grow(facts, place, step_time(facts, place, answer.first, answer.last), answer)


def _is_somebody_found(facts: RunFacts, place: Place, first: int, last: int) -> bool:
    found = (slow for slow in found_at(facts, place) if slow.kind != "pause" and slow.accuses)
    return any(slow.since <= last and slow.last >= first for slow in found)


def long_steps_of(facts: RunFacts, place: Place, first: int, last: int) -> LongSteps | None:
    """Return which of these steps are far longer than most, with what phases have of it.

    None where there are none, somebody was found slow then, or most steps are another level, too.
    """
    time = step_time(facts, place, first, last)
    # By the clock an attempt's first step lasts since the last one of the attempt before: the restart is in it.
    restarts = {step for step, _ in facts.restarts.get(place, ())} if time.source == "clock" else set()
    steps = [step for step in time.seconds if first <= step <= last and step not in restarts]
    found = [slow for slow in found_at(facts, place) if slow.kind != "pause"]
    if not steps or _is_somebody_found(facts, place, first, last):
        return None
    beside = calm_steps(time, usual_steps(time, steps[0], steps[-1], [(slow.since, slow.last) for slow in found]))
    long = long_steps(time, place.axis, steps, beside)
    if long is None or _is_another_level(time, [step for step in steps if step not in long.of_steps], beside):
        return None
    long = _told_once(long, facts.times.get(place, {}), time)
    long = with_phases(long, by_paths(facts, place, time, tuple(long.of_steps), long.typical))
    alone = (alone_in(facts, place, one.phase, one.seconds, one.steps) for one in long.grown)
    return replace(long, grown=tuple(replace(one, rank=rank) for one, rank in zip(long.grown, alone, strict=True)))


def _told_once(long: LongSteps, times: Mapping[int, float], time: StepTime) -> LongSteps:
    """Return long steps without those in which ranks waited for one that was still in the step before."""
    twice = counted_twice(long.of_steps, time.seconds, times)
    of_steps = {step: longer for step, longer in long.of_steps.items() if step not in twice}
    # `share` is the long steps' part of all time, so this is all time, with what is in two steps once.
    whole_s = long.total_s / long.share - sum(twice.values())
    return replace(long, of_steps=of_steps, share=sum(of_steps.values()) / whole_s)


def _is_another_level(time: StepTime, steps: Sequence[int], usual: Sequence[int]) -> bool:
    if not steps or not usual:
        return False
    usual_s = fmean(time.seconds[step] for step in usual)
    return abs(fmean(time.seconds[step] for step in steps) - usual_s) > NOTICED * usual_s


def told_with(long: LongSteps, answer: Answer, facts: RunFacts, place: Place) -> Answer:
    """Return the answer about all steps with what there is to say of the long ones.

    It stays as it is where it has a reason, and the long ones have none: steps follow data, or a rank joined.
    """
    first, last = answer.first or 0, answer.last or 0
    is_one = first == last
    is_said = answer.verdict == "coincided" or any(one.kind == "follows" for one in answer.evidence)
    # Of one step: the answer about it compares it with the steps before, and tells nearly all of it already.
    is_said = is_said or (is_one and (answer.effect or 0.0) >= CAUSED * long.total_s)
    if is_said and not long.is_caused:
        return answer
    took = f"{steps_text(first, last, place.axis).capitalize()}{whose(facts, place, (first, last))} took"
    longest = Look(place.axis, long.longest, f"the longest one, {seconds(long.longest_s)}")
    return replace(
        answer,
        verdict="caused" if long.is_caused else "cannot tell",
        effect=long.total_s / long.steps,
        explained=long.explained,
        sentences=(f"{took} {long.told_of_one if is_one else long.told}.", long.cause, long.advice),
        account=long.account,
        adds_up=long.adds_up,
        of_rank=long.of_rank,
        evidence=tuple(one for one in answer.evidence if one.kind != "pause"),
        look_at=answer.look_at if is_one else (longest,),
    )
