"""Which answer a question means: of a metric, of steps, or of the run as a whole."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from otel_ml.exceptions import ConfigError
from otel_ml.quantities import seconds
from otel_ml_service.findings.wording import plural
from otel_ml_service.stored_runs.run_history import SeriesName
from otel_ml_service.why.answer import ABOUT, CAUSED, Answer, Evidence
from otel_ml_service.why.between_steps import Between, between_steps
from otel_ml_service.why.completeness import completeness
from otel_ml_service.why.costliest_steps import quick_range, slow_range
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.long_steps import LEAST_STEPS, LongSteps
from otel_ml_service.why.metric_change import explain_metric, largest_change
from otel_ml_service.why.slow_steps import explain_steps
from otel_ml_service.why.step_time import step_time
from otel_ml_service.why.steps_answer import growing, long_steps_of, steps_answer, told_with
from otel_ml_service.why.untimed import Untimed, untimed

__all__ = ["Question", "why", "why_steps"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a run.

    Attributes:
        metric: published name of a metric, or of a timer; without one it is the time of steps.
        first, last: steps; None for those that need an answer most.
        axis: of the steps; None for the metric's, or that of the trainer.
        role: whose steps; None for the trainer, or whoever has most.
    """

    metric: str | None = None
    first: int | None = None
    last: int | None = None
    axis: str | None = None
    role: str | None = None


def why(facts: RunFacts, question: Question) -> Answer:
    """Return the answer.

    Raises:
        ConfigError: the run has no such metric, axis or role; the message names the nearest.
    """
    failures = sorted(facts.history.failures, key=lambda failure: failure.time)
    return replace(_answer(facts, question), failures=tuple(failures))


def why_steps(facts: RunFacts) -> Answer | None:
    """Return what `why` says of the steps of the whole run, without asking its metrics, which takes ten times as long.

    None where there is nothing to say of them.
    """
    every = [_Whole(facts, place) for place in _places(facts, Question())]
    if not every:
        return None
    is_short = len(every[0].steps) < LEAST_STEPS
    # On a page "nothing stands out" is no news; that there are too few steps to tell is.
    return _noticed(facts, every) or _lost_in_calm(every[0]) or (_calm(facts, every) if is_short else None)


def _answer(facts: RunFacts, question: Question) -> Answer:
    if question.metric is not None:
        key = _named(facts, question.metric, question.axis)
        return explain_metric(facts, facts.place_of(key.axis, key.name), key.name, question.first, question.last)
    places = _places(facts, question)
    # Who names no role means the first place that there is, the trainer's if it has one (`RunFacts.places`).
    if question.first is not None and question.last is not None and places:
        return steps_answer(facts, places[0], question.first, question.last)
    return _worst(facts, places)


def _worst(facts: RunFacts, places: list[Place]) -> Answer:
    """Return why the costliest steps of any role were slow; without such, why the metric changed that changed most.

    Who was found comes first, then what cost most: another level, or long steps now and then.
    """
    every = [_Whole(facts, place) for place in places]
    noticed = _noticed(facts, every)
    if noticed is not None:
        return noticed
    for place in places:
        name = largest_change(facts, place)
        if name is not None:
            return explain_metric(facts, place, name, None, None)
    # Slow ranks that nobody waits for, and what lasts from the first step on, make no step longer than others.
    accused = {found.place for found in facts.findings if found.accuses}
    of_found = next((one for place, one in _slow_ranges(facts, places) if place.prefix in accused), None)
    return _calm(facts, every) if of_found is None else of_found  # steps are as usual, and still somebody was found


def _slow_ranges(facts: RunFacts, places: Iterable[Place]) -> Iterator[tuple[Place, Answer]]:
    for place in places:
        found = slow_range(facts, place)
        if found is not None:
            yield place, _with_others(facts, steps_answer(facts, place, *found))


@dataclass(frozen=True)
class _Whole:
    """All steps of a place, for one question: what is worked out of them takes a second of a long run."""

    facts: RunFacts
    place: Place

    @cached_property
    def steps(self) -> list[int]:
        """Ascending."""
        return sorted(self.facts.times[self.place])

    @cached_property
    def answer(self) -> Answer:
        """Why they took as long as they did."""
        return explain_steps(self.facts, self.place, self.steps[0], self.steps[-1])

    @cached_property
    def lost(self) -> list[Between | Untimed | LongSteps]:
        """Where they lost time that no finding and no level tells: between steps, in no timer, in long ones."""
        time = step_time(self.facts, self.place)
        lost = (
            between_steps(self.facts, self.place, time, self.steps),
            untimed(self.facts, self.place, time, self.steps),
            long_steps_of(self.facts, self.place, self.steps[0], self.steps[-1]),
        )
        return [one for one in lost if one is not None]


def _noticed(facts: RunFacts, every: Sequence[_Whole]) -> Answer | None:
    """Return why the costliest steps were slow, or which metric they follow; None where they are as usual."""
    answers = [answer for _, answer in _slow_ranges(facts, [whole.place for whole in every])]
    noticed = [answer for answer in answers if answer.effect is not None and answer.effect > 0]
    # Where somebody was found, what the whole run lost besides is not a second answer.
    if any(answer.verdict == "caused" for answer in noticed):
        return _most(noticed)
    noticed += [answer for whole in every for answer in _of_whole_run(whole)]
    if noticed:
        return _most(noticed)
    return next((answer for answer in answers if answer.verdict == "coincided"), None)


def _with_others(facts: RunFacts, answer: Answer) -> Answer:
    """Return the answer about the costliest steps with how much else was found, in steps that it is not about."""
    first, last = answer.first or 0, answer.last or 0
    others = [
        slow
        for slow in facts.findings
        if slow.accuses and slow.kind == "slow"
        and (slow.axis != answer.axis or slow.last < first or slow.since > last)
    ]  # fmt: skip
    if not others:
        return answer
    cost = seconds(sum(slow.cost_s for slow in others))
    times = "once" if len(others) == 1 else f"{len(others):,} times"
    text = f"slow ranks were found {times} in other steps, too, {cost} in all: `otel-ml show {facts.id}` lists them"
    return replace(answer, evidence=(*answer.evidence, Evidence("finding", None, text)))


def _of_whole_run(whole: _Whole) -> Iterator[Answer]:
    """Yield why some steps of a place are far longer than most, if that stands out, or all take longer and longer."""
    most = max(whole.lost, key=lambda one: one.total_s, default=None)
    if isinstance(most, LongSteps) and most.stands_out:
        answer = told_with(most, whole.answer, whole.facts, whole.place)
        # One that says that steps follow the data was left as it is by `told_with`, and is not about long steps.
        yield from [answer] * (answer.verdict != "coincided")
    if (grown := growing(whole.facts, whole.place, whole.answer)) is not None:
        yield grown


def _most(answers: Sequence[Answer]) -> Answer:
    """Return the costliest answer; one that has a cause comes before those that cost hardly more."""
    # Roles wait for each other: who waits for a slow rank loses what it costs, and now and then a little more.
    least = CAUSED * max(map(_cost, answers))
    caused = [answer for answer in answers if answer.verdict == "caused" and _cost(answer) >= least]
    return max(caused or answers, key=_cost)


def _cost(answer: Answer) -> float:
    # The effect is that of one step.
    steps = (answer.last or 0) - (answer.first or 0) + 1
    return (answer.effect or 0.0) * steps


def _calm(facts: RunFacts, every: Sequence[_Whole]) -> Answer:
    if not every:
        return Answer(
            facts.id, ABOUT, "", "", None, None, "cannot tell", None, 0.0,
            (
                "The run has no steps.",
                "Cannot tell: without steps there is nothing to compare.",
                "Call `otel_ml.set_step(step)`, or loop over `otel_ml.steps(loader)`.",
            ),
        )  # fmt: skip
    lost = _lost_in_calm(every[0])
    if lost is not None:
        return lost
    place, steps, whole = every[0].place, every[0].steps, every[0].answer
    nothing = f"Nothing stands out in {plural(len(steps), place.axis)}: no rank was found slow, no level changed."
    no_more = "Cannot tell more: nothing has to be explained, as far as the run has timers and metrics."
    if len(steps) < LEAST_STEPS:
        nothing = f"The run has {plural(len(steps), place.axis)}, and no rank was found slow in {_them(steps)}."
        no_more = f"Cannot tell: it takes {LEAST_STEPS} to say what is usual, and which are longer."
    return Answer(
        facts.id, ABOUT, place.role, place.axis, steps[0], steps[-1], "cannot tell", None, 0.0,
        (
            nothing,
            no_more,
            # Without phases no table follows that this sentence could point at.
            whole.sentences[2] if not whole.account else "Where the time goes is below.",
        ),
        account=whole.account, adds_up=whole.adds_up, of_rank=whole.of_rank,
        evidence=tuple(completeness(facts, place, steps[0], steps[-1])),
    )  # fmt: skip


def _lost_in_calm(every: _Whole) -> Answer | None:
    """Return what the steps of a place follow, or where they lost time that no level tells; None where they did not."""
    facts, place, steps, whole = every.facts, every.place, every.steps, every.answer
    if whole.verdict == "coincided":
        return whole
    most = max(every.lost, key=lambda one: one.total_s, default=None)
    long = next((one for one in every.lost if isinstance(one, LongSteps)), None)
    told = whole if long is None else told_with(long, whole, facts, place)
    if isinstance(most, Between):
        return replace(told, verdict="cannot tell", explained=0.0, sentences=_between(most, len(steps), whole))
    if isinstance(most, Untimed):
        return replace(told, verdict="cannot tell", explained=0.0, sentences=_within(most, len(steps)))
    if most is not None:
        return told
    # No step is long. Where all are shorter from some step on, that is what there is to tell.
    quick = quick_range(facts, place)
    return None if quick is None else explain_steps(facts, place, *quick)


def _them(steps: Sequence[int]) -> str:
    return "it" if len(steps) == 1 else "them"


def _between(between: Between, steps: int, whole: Answer) -> tuple[str, str, str]:
    """Return what a calm run lost where nobody looked."""
    return (
        f"Nothing stands out in {plural(steps, between.axis)}, but {between.passed}.",
        "Cannot tell: what was done there is not timed, and nobody is slow for it.",
        'Put `with otel_ml.timed("checkpoint"):`, or what it is, around it; '
        f"look at what comes before {whole.axis} {between.longest:,}.",
    )


def _within(within: Untimed, steps: int) -> tuple[str, str, str]:
    """Return what a calm run lost in steps where nobody looked."""
    return (
        f"Nothing stands out in {plural(steps, within.axis)}, but {within.how_much}.",
        "Cannot tell: what was done there is not timed, and nobody is slow for it.",
        within.advice,
    )


def _places(facts: RunFacts, question: Question) -> list[Place]:
    places = [
        place
        for place in facts.places
        if (question.axis in {None, place.axis}) and (question.role in {None, place.role})
    ]
    # To ask about a run without any steps is not wrong: `_calm` has an answer to it.
    if not places and facts.places:
        there = ", ".join(f"axis {place.axis!r} of role {place.role!r}" for place in facts.places)
        asked_for = [f"axis {question.axis!r}"] * (question.axis is not None)
        asked_for += [f"role {question.role!r}"] * (question.role is not None)
        raise ConfigError(
            f"Run {facts.id} has no steps of {' and '.join(asked_for)}. It has: {there}.",
            slug="unknown-metric",
        )
    return places


def _named(facts: RunFacts, metric: str, axis: str | None) -> SeriesName:
    found = [key for key in facts.history.series if key.name == metric and axis in {None, key.axis}]
    if found:
        return found[0]
    names = sorted({key.name for key in facts.history.series})
    # People leave out what a name begins with. By letters, `forward` is not near enough to a long name that ends so.
    ends = [name for name in names if name.endswith(f"/{metric}")]
    near = ends or difflib.get_close_matches(metric, names, n=3)
    hint = f" Did you mean {', '.join(map(repr, near[:3]))}?" if near else ""
    raise ConfigError(
        f"Run {facts.id} has no metric {metric!r}.{hint} It has {len(names)}: otel-ml show {facts.id}",
        slug="unknown-metric",
    )
