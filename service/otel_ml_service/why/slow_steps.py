"""Why steps took as long as they did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from otel_ml.quantities import percent, seconds
from otel_ml_service.findings.phases import UNTIMED, is_waiting
from otel_ml_service.findings.wording import listed, plural, signed, steps_text
from otel_ml_service.why.answer import ABOUT, CAUSED, Answer, Evidence, Look, Phase, Verdict
from otel_ml_service.why.between_steps import one_rank_between
from otel_ml_service.why.coincidences import changes_near
from otel_ml_service.why.completeness import completeness
from otel_ml_service.why.costliest_steps import NOTICED, found_at
from otel_ml_service.why.facts import Place, RunFacts, Slow
from otel_ml_service.why.fewer_samples import FewerSamples, fewer_samples, waits_for
from otel_ml_service.why.finding_text import found_text
from otel_ml_service.why.followed_metric import follows, follows_in_each_step
from otel_ml_service.why.late_samples import LateSamples, late_samples
from otel_ml_service.why.long_steps import INSIDE
from otel_ml_service.why.not_finite import no_longer_finite
from otel_ml_service.why.one_host import alone_on_hosts, told_with_hosts
from otel_ml_service.why.ranks_in_phases import alone_in, without_timers
from otel_ml_service.why.step_paths import by_paths
from otel_ml_service.why.step_time import StepTime, account, calm_steps, step_time, usual_steps, without_pauses
from otel_ml_service.why.unknown_steps import NO_TIMERS, unknown_steps
from otel_ml_service.why.untimed import in_no_timer
from otel_ml_service.why.where_to_look import shown_exactly, where_to_look

__all__ = ["explain_steps", "whose"]

_FEW = 3
"""Steps that one rank may have made long, which came late to them."""

_EVENED = {"stage": "With the work spread over all stages", "load": "With as much for all ranks"}
"""What takes a cause away that is not a fault."""


@dataclass(frozen=True, slots=True)
class _Effect:
    """Steps against the usual ones.

    Attributes:
        kept, usual: steps that are compared; `pauses` are left out of `steps`.
        usual_s: seconds of a usual step; without any, of one without what was found, if that was worked out.
        by: seconds a step; 0 where nothing tells what they would take.
        is_noticed: more than the usual steps differ by themselves; `is_as_usual` is less than anybody minds.
    """

    steps: Sequence[int]
    kept: Sequence[int]
    usual: Sequence[int]
    mean_s: float
    usual_s: float
    is_noticed: bool

    @property
    def by(self) -> float:
        return self.mean_s - self.usual_s if self.usual_s else 0.0

    @property
    def is_as_usual(self) -> bool:
        return abs(self.by) <= NOTICED * self.usual_s

    @property
    def pauses(self) -> int:
        return len(self.steps) - len(self.kept)


def explain_steps(facts: RunFacts, place: Place, first: int, last: int) -> Answer:
    """Return why the steps `first` to `last` of a place took as long as they did."""
    time = step_time(facts, place, first, last)
    steps = [step for step in time.seconds if first <= step <= last]
    if not steps:
        return unknown_steps(facts, place, first, last, time)
    first, last = _recorded(facts, place, first, last)

    # What the steps take longer than usual ones, and how much of that was found by the service.
    found = found_at(facts, place)
    # Steps of which something was found are not what is usual; a pause is left out of any step by its length.
    not_in = [(slow.since, slow.last) for slow in found if slow.kind != "pause"]
    effect = _effect(time, steps, not_in)
    there = _there(found, effect)
    pauses, there = [slow for slow in there if slow.kind == "pause"], [slow for slow in there if slow.kind != "pause"]
    causes = [shown_exactly(facts, place, slow) for slow in there if slow.accuses]
    # What lasts from the first step on has no usual steps: it is compared with itself without what was found.
    effect = effect if effect.usual else _without(effect, causes)
    saved = _saved(causes, effect)
    explained = min(saved / effect.by, 1.0) if effect.is_noticed and effect.by > 0 else 0.0

    # Whose samples they waited for is asked where ranks do not explain it: that is arithmetic over links, no finding.
    needs_reason = effect.is_noticed and explained < CAUSED
    late = _late(facts, place, time, effect) if needs_reason else None
    # Causes are weighed by what they cost, and told with what was worked out by playing the steps again.
    saved = _shorter(causes, effect, saved)
    explained = late.part if late is not None else explained
    outside = one_rank_between(facts, place, time, steps)
    evidence = [
        *(Evidence("finding" if slow.accuses else "follows", slow.since, found_text(slow)) for slow in there),
        *alone_on_hosts(facts, place, causes),
        *([late.evidence] if late is not None else []),
        *_meanwhile(facts, place, effect, time, there),
        *(outside if len(steps) <= _FEW else ()),
    ]
    verdict = _verdict(explained, effect, evidence)
    names = told_with_hosts(facts, place, causes)

    # Where phases do not form a line, the account comes from the paths, of some of the steps only.
    looks = where_to_look(facts, place, causes, effect.steps, effect.kept, time)
    paths = by_paths(facts, place, time, effect.kept, effect.usual)
    kept, usual = ([step for step in steps if step in paths.seconds] for steps in (effect.kept, effect.usual))
    phases = account(paths, kept, usual)
    cause = late.cause if late is not None else _why(verdict, causes, names, explained, effect, evidence)
    cause = cause or _in_what(facts, place, effect, paths, phases)
    return Answer(
        run=facts.id, about=ABOUT, role=place.role, axis=place.axis, first=first, last=last, verdict=verdict,
        effect=effect.by if effect.usual_s else None, explained=explained,
        sentences=(
            _what(facts, place, first, last, effect),
            cause,
            late.without_it if late is not None else _then(verdict, there, effect, saved, looks, paths, phases),
        ),
        account=phases, adds_up=paths.adds_up, of_rank=paths.of_rank,
        evidence=(
            *evidence, *(Evidence("finding", slow.since, found_text(slow)) for slow in pauses),
            *no_longer_finite(facts, place, first, last), *in_no_timer(facts, place, time, steps),
            *(one for one in outside if one not in evidence),
            *_left_out(effect, time, place), *completeness(facts, place, first, last),
        ), look_at=tuple(looks),
    )  # fmt: skip


def _late(facts: RunFacts, place: Place, time: StepTime, effect: _Effect) -> LateSamples | FewerSamples | None:
    """Return whose samples these steps wait for: of one producer, or of all."""
    one = late_samples(facts, place, time, effect.kept, effect.usual)
    return fewer_samples(facts, place, time, effect.kept, effect.usual) if one is None else one


def _recorded(facts: RunFacts, place: Place, first: int, last: int) -> tuple[int, int]:
    """Return the first and the last step of those that are asked about and that the run has."""
    there = [step for step in facts.times.get(place, {}) if first <= step <= last]
    return min(there, default=first), max(there, default=last)


def _effect(time: StepTime, steps: Sequence[int], not_in: Sequence[tuple[int, int]]) -> _Effect:
    usual = calm_steps(time, usual_steps(time, steps[0], steps[-1], not_in))
    kept = without_pauses(time, steps)
    mean_s = fmean([time.seconds[step] for step in kept])
    if not usual:
        return _Effect(steps, kept, (), mean_s, 0.0, is_noticed=False)
    usual_s = fmean(time.seconds[step] for step in usual)
    # As a standard deviation (of normal noise); what is compared is a mean, which scatters less the more steps it is
    # of.
    scatter = 1.4826 * median(abs(time.seconds[step] - usual_s) for step in usual)
    # A mean of more than 16 steps is taken for no surer than one of 16: steps that follow one another are alike.
    least = max(NOTICED * usual_s, 3 * scatter / min(len(kept), 16) ** 0.5)
    return _Effect(steps, kept, usual, mean_s, usual_s, abs(mean_s - usual_s) > least)


def _without(effect: _Effect, causes: Iterable[Slow]) -> _Effect:
    """Return steps against what they would take without what was found: of what lasts from the beginning on."""
    saved = sum((slow.saved_s or 0.0) * _share(slow, effect) for slow in causes)
    # Each estimate is of one cause alone. Of several the sum may be more than a step takes, and then it says nothing.
    if not 0 < saved < effect.mean_s:
        return effect
    return replace(effect, usual_s=effect.mean_s - saved, is_noticed=saved > NOTICED * effect.mean_s)


def _there(found: Iterable[Slow], effect: _Effect) -> list[Slow]:
    """Return what was found in these steps, the costliest first."""
    begin, end = effect.steps[0], effect.steps[-1]
    return [slow for slow in found if slow.since <= end and slow.last >= begin]


def _saved(causes: Iterable[Slow], effect: _Effect) -> float:
    """Return the seconds a step that are lost to the causes: of ranks slow in one phase, the slowest counts."""
    if not effect.usual:
        return effect.by  # `_without` has made it of the causes
    lost: dict[str, float] = {}
    for slow in causes:
        lost[slow.phase] = max(lost.get(slow.phase, 0.0), slow.extra_s * _share(slow, effect))
    return sum(lost.values())


def _shorter(causes: Sequence[Slow], effect: _Effect, saved: float) -> float:
    """Return what these steps would be shorter without the causes: of one alone what was worked out for its steps."""
    alone = causes[0] if len(causes) == 1 else None
    if alone is None or not alone.saved_s or not effect.usual:
        return saved
    return alone.saved_s * _share(alone, effect)


def _share(slow: Slow, effect: _Effect) -> float:
    """Return in which part of the steps it was so."""
    return sum(slow.since <= step <= slow.last for step in effect.kept) / len(effect.kept)


def _verdict(explained: float, effect: _Effect, evidence: Sequence[Evidence]) -> Verdict:
    if not effect.is_noticed:
        # Without usual steps no effect can be noticed, and still their time may follow a metric.
        return "coincided" if not effect.usual and any(one.kind == "follows" for one in evidence) else "cannot tell"
    if explained >= CAUSED:
        return "caused"
    return "coincided" if evidence else "cannot tell"


def _meanwhile(facts: RunFacts, place: Place, effect: _Effect, time: StepTime, there: Sequence[Slow]) -> list[Evidence]:
    """Return what changed when these steps began, and what their time follows, where that needs a reason."""
    is_longer = effect.is_noticed and bool(effect.usual)
    near = changes_near(facts, place, effect.steps[0], is_own_known=True) if is_longer else []
    is_of_data = any(slow.kind == "shape" for slow in there)
    if is_longer or is_of_data:
        return [*near, *follows(facts, place, effect.steps, time)]
    return (
        follows_in_each_step(facts, place, effect.steps, time)
        if not effect.usual and _varies(time, effect.kept)
        else []
    )


def _varies(time: StepTime, steps: Sequence[int]) -> bool:
    return time.scatter_s(steps) > NOTICED * time.usual_s(steps)


def _left_out(effect: _Effect, time: StepTime, place: Place) -> list[Evidence]:
    if not effect.pauses:
        return []
    paused_s = sum(time.seconds[step] for step in effect.steps) - sum(time.seconds[step] for step in effect.kept)
    are = "is" if effect.pauses == 1 else "are"
    text = f"{plural(effect.pauses, place.axis)} with a long pause, {seconds(paused_s)} in all, {are} left out"
    return [Evidence("pause", None, text)]


def _what(facts: RunFacts, place: Place, first: int, last: int, effect: _Effect) -> str:
    who = whose(facts, place, effect.steps)
    took = f"{steps_text(first, last, place.axis).capitalize()}{who} took {seconds(effect.mean_s)}"
    each = " each" if len(effect.steps) > 1 else ""
    if not effect.usual and effect.is_noticed:
        share = percent(effect.by / effect.mean_s)
        return f"{took}{each}: {seconds(effect.by)} ({share}) more than without what was found; no step was without it."
    if not effect.usual:
        return f"{took}{each}; there are no usual steps to compare with."
    if not effect.is_noticed:
        usual = seconds(effect.usual_s)
        if effect.is_as_usual:
            return f"{took}{each}, as usual ({usual})."
        return f"{took}{each}, usual ones {usual}: these vary by as much among themselves."
    total = effect.by * len(effect.kept)
    more = f", {seconds(abs(total))} in all" if len(effect.steps) > 1 else ""
    return f"{took}{each} instead of {seconds(effect.usual_s)}: {signed(seconds(effect.by))} a {place.axis}{more}."


def whose(facts: RunFacts, place: Place, steps: Sequence[int]) -> str:
    """Return of which role steps are, behind their numbers; nothing of the trainer's."""
    return "" if place.prefix == "" else f" of {place.role}{_beside(facts, place, steps)}"


def _beside(facts: RunFacts, place: Place, steps: Sequence[int]) -> str:
    """Return beside which trainer steps those of another axis were done."""
    trainer, times = facts.places[0], facts.times.get(place, {})
    if trainer.axis == place.axis:
        return ""
    ends = (facts.beside(trainer, times.get(step, math.inf)) for step in (steps[0], steps[-1]))
    known = [end for end in ends if end is not None]
    return f" (beside {steps_text(known[0], known[-1], trainer.axis)})" if known else ""


def _why(
    verdict: Verdict,
    causes: Sequence[Slow],
    names: Sequence[str],
    explained: float,
    effect: _Effect,
    evidence: Sequence[Evidence],
) -> str:
    """Return the verdict and its reason; nothing where only the account has something to say."""
    if verdict == "caused":
        of_ranks = _not_slow(causes)
        part = f"; {percent(explained)} of it goes with that" if effect.usual else ""
        return f"Caused: {listed(names)}{of_ranks}{part}."
    if verdict == "coincided":
        said = listed([one.text for one in evidence], 3)
        is_of_data = all(one.kind == "follows" for one in evidence) and "nobody was slow" not in said
        nobody = "nobody was slow, and " if is_of_data else ""
        if causes and explained > NOTICED:
            part, least = percent(explained), percent(CAUSED)
            return f"Coincided: {said}; {part} of it goes with that, and {least} would make it the cause."
        return f"Coincided: {said}; {nobody}nothing shows that one led to the other."
    if not effect.is_noticed:
        missing = "" if effect.usual else f" It takes {plural(8, 'calm step')} before or after to say what is usual."
        if effect.usual and causes:
            alike = "are as long as usual" if effect.is_as_usual else "vary by as much anyway"
            return f"Cannot tell more: {listed(names)}, and steps {alike}."
        if causes:
            return f"Cannot tell what it cost: {listed(names)}, and no step was without it."
        return f"Cannot tell more: nothing in these steps has to be explained.{missing}"
    return ""


def _in_what(facts: RunFacts, place: Place, effect: _Effect, time: StepTime, phases: Sequence[Phase]) -> str:
    """Return in which phase the effect is, whose it is, and why that is not told as a cause."""
    if not time.adds_up or not phases:
        return "Cannot tell: nothing else in the run changed then, and no rank was found slow."
    most, by_s = phases[0], phases[0].seconds - (phases[0].usual_s or 0.0)
    told = f"Cannot tell: {signed(seconds(by_s))} of it is in {'no timer' if most.name == UNTIMED else most.name}"
    if effect.by < 0:
        return f"{told}; what was changed there is not recorded."
    if waits := waits_for(facts, place, time, effect.kept, effect.usual):
        return f"{told}, {waits}."
    if time.is_alone:
        return f"{told}, and a rank alone has no peers to be compared with."
    if (rank := alone_in(facts, place, most.name, by_s, effect.kept)) is not None:
        return f"{told} of rank {rank} alone; {INSIDE}."
    if is_waiting(most.name) and (silent := without_timers(facts, place, time, effect.kept)):
        who = f"rank {silent[0]} has" if len(silent) == 1 else f"ranks {listed([*map(str, silent)])} have"
        return f"{told}, and {who} no timers: with some it could be told whether the others wait for that."
    return f"{told}, and no rank was found slower there than its peers."


def _not_slow(causes: Iterable[Slow]) -> str:
    """Return that nobody is accused, where all causes are of that kind."""
    kinds = {slow.kind for slow in causes}
    if kinds == {"stage"}:
        return "; none of its ranks was slow"
    return "; nobody was slow for what it was given" if kinds == {"load"} else ""


def _then(
    verdict: Verdict,
    there: Sequence[Slow],
    effect: _Effect,
    saved: float,
    looks: Sequence[Look],
    time: StepTime,
    phases: Sequence[Phase],
) -> str:
    if verdict == "caused":
        without = _without_them(there, seconds(min(saved, effect.by)))
        return f"{without}; look at {looks[0].axis} {looks[0].step:,}." if looks else f"{without}."
    evened = max((slow.saved_s or 0.0 for slow in there if slow.kind == "shape"), default=0.0)
    # Of what follows the data: giving all ranks as much is what helps, and no step to look at.
    if verdict == "coincided" and evened > NOTICED * effect.mean_s:
        return f"Where the longest rank is given as much as the mean one, a step is {seconds(evened)} shorter."
    if time.source == "clock" and not time.phases:
        return NO_TIMERS
    if not time.adds_up:
        return (
            "The phases of these steps do not add up: no spans of all ranks are kept, so the slowest rank of each "
            "timer is shown. The exporter `jsonl` keeps them."
        )
    if effect.is_noticed and phases and phases[0].name == UNTIMED:
        return (
            'Put `with otel_ml.timed("checkpoint"):`, or what it is, around what is in no timer; '
            f"look at {looks[0].axis} {looks[0].step:,}."
        )
    if len(effect.steps) == 1:
        return f"{looks[0].text}."
    return f"Look at {looks[0].axis} {looks[0].step:,}: {looks[0].text}." if looks else "There is no step to look at."


def _without_them(there: Sequence[Slow], by: str) -> str:
    """Return what is gained without what was found; whose steps are shorter, where ranks do not wait for each other."""
    if not any(slow.others_wait for slow in there):
        own, them = ("Its", "it") if len({slow.who for slow in there}) == 1 else ("Their", "them")
        return f"{own} own steps are {by} shorter without that, and most ranks do not wait for {them}"
    kinds = {slow.kind for slow in there}
    without = "Without it" if sum(slow.accuses for slow in there) == 1 else "Without them"
    without = _EVENED[kinds.pop()] if len(kinds) == 1 and kinds <= _EVENED.keys() else without
    return f"{without} these steps are {by} shorter"
