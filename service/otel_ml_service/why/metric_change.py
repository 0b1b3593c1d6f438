"""Why a metric changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from otel_ml.quantities import percent
from otel_ml_service.findings.change_points import LEAST, Change, ChangePoints, change_points
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import listed, plural, signed, steps_text
from otel_ml_service.stored_runs.run_history import SeriesName
from otel_ml_service.why.answer import Answer, Evidence, Look, Verdict
from otel_ml_service.why.by_producers import ByProducers, told, told_mix
from otel_ml_service.why.by_version_and_task import levels
from otel_ml_service.why.coincidences import changes_near, first_not_finite, is_looked_at
from otel_ml_service.why.completeness import completeness
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.gradual_change import gradual_turn
from otel_ml_service.why.not_finite import finite_no_more, not_finite_since, on_ranks
from otel_ml_service.why.producers import (
    USUAL,
    Producer,
    Responsible,
    are_parts_of,
    is_about_producers,
    mix_of,
    mostly_by,
    producers_of,
    responsible_for,
)
from otel_ml_service.why.step_time import step_time
from otel_ml_service.why.turn import BACK, Turn, range_of

__all__ = ["explain_metric", "largest_change"]

_BLOCK = 4
"""Steps by which it is looked whether the new level goes on."""

_NEWEST = 2048
"""Steps that are searched where nobody says which metric: the newest ones."""

_AS_LARGE, _WAYBACK = 0.9, 0.5
"""Of changes about as large as the largest one the first counts; so does one that is half as large and goes the other
way: the largest may be the way back."""

_VARIED_NOT = 1e6
"""Scatters from which on a metric did not vary before: what is left is how numbers are rounded."""

_LINKS = (
    "An edge would tell: `otel_ml.consumed(contexts)` of what made these values, and the metric of each producer "
    "(`rl.batch_reward(…, contexts=…)`)."
)

_STRANGERS = (
    "Samples were consumed, and none of their contexts names who made it: take them from `otel_ml.context()` there, "
    "and they are links."
)

_OF_PRODUCERS = (
    "It tells of who made samples; whether that led to something is told of a metric that is the mean over their "
    "samples: ask with `--metric`."
)

_NORMS = (
    "Norms of gradients and activations (`otel_ml.diagnostics.dynamics`) tell which layer was no longer finite first."
)

_WHICH_RANK = 'Which rank was first is not known: record it with `reduce="rank"`, too.'

_FIRST, _FIRST_BROKEN = "the first one with the new level", "the first one that is not finite"


def largest_change(facts: RunFacts, place: Place) -> str | None:
    """Return the metric that changed most, by its own scatter; what is no longer a number comes first.

    Of several of these it is the one that began it, and before those that were none for some steps only. What did not
    vary before (a learning rate, an epoch), and what tells of producers, changes other metrics: it comes last.
    """
    # Size in scatters, whether it is so to the end, how early it began, name: the largest is the answer.
    sizes: list[tuple[float, bool, float, str]] = []
    set_by_somebody: list[tuple[float, bool, float, str]] = []
    for name, values in facts.series(place):
        if not is_looked_at(name):
            continue
        if (broken := first_not_finite(values)) is not None:
            sizes.append((math.inf, not_finite_since(values) is not None, -broken, name))
        newest = dict(sorted(values.items())[-_NEWEST:])
        for change in _points(newest).changes:
            is_set = change.size >= _VARIED_NOT or is_about_producers(facts, place, name)
            (set_by_somebody if is_set else sizes).append((change.size, False, 0.0, name))
    found = sizes or set_by_somebody
    return max(found)[-1] if found else None


def explain_metric(facts: RunFacts, place: Place, name: str, first: int | None, last: int | None) -> Answer:
    """Return why a metric changed in the steps `first` to `last`, in the 64 before one step, or anywhere."""
    values = facts.history.series[place.axis, name]  # type: ignore[index] # a SeriesName is a tuple
    points = _points(values)
    producers = producers_of(facts, place, name)
    at_once = _turn(facts, place, name, values, points, first, last)
    gradual = gradual_turn(name, values, producers, first, last) if at_once is None else None
    turn, last_of = gradual if gradual is not None else (at_once, 0)
    if turn is None:
        return _unchanged(facts, place, name, values, points, first, last, producers)
    near = changes_near(facts, place, turn.step, but=name)
    last_of = last_of or _last_of(turn, values)
    are_parts = are_parts_of(producers, values, turn.step, last_of)
    mix = mix_of(producers, turn.step, last_of) if are_parts else None
    before = [step for step in sorted(values) if step < turn.step][-USUAL:]
    parts = levels(facts, place, name, producers, before, [step for step in values if turn.step <= step <= last_of])
    # Before the producers: without one of them the change would be gone as well, and its samples are as they were.
    if mix is not None:
        because = told_mix(facts, place, name, turn.step, last_of, mix)
        return replace(_caused(facts, place, name, turn, because, mix.part), levels=parts)
    found = responsible_for(producers, turn.step, last_of) if are_parts else None
    if found is not None:
        because = told(facts, place, name, turn.step, last_of, found)
        return replace(_caused(facts, place, name, turn, because, found.part), levels=parts)
    verdict: Verdict = "coincided" if near else "cannot tell"
    mostly = mostly_by(producers, turn.step, last_of) if are_parts else None
    needed = _needed(facts, place, turn, producers, name, are_parts=are_parts)
    return Answer(
        run=facts.id, about=name, role=place.role, axis=place.axis, first=turn.step, last=turn.found_at,
        verdict=verdict, effect=turn.effect, explained=0.0 if mostly is None else mostly.part,
        sentences=(turn.text, _why(near, turn), needed if mostly is None else _mostly(mostly, name)),
        evidence=(*near, *completeness(facts, place, turn.step, turn.found_at)),
        look_at=(Look(place.axis, turn.step, _FIRST_BROKEN if turn.effect is None else _FIRST),), levels=parts,
    )  # fmt: skip


def _caused(facts: RunFacts, place: Place, name: str, turn: Turn, said: ByProducers, part: float) -> Answer:
    return Answer(
        run=facts.id, about=name, role=place.role, axis=place.axis, first=turn.step, last=turn.found_at,
        verdict="caused", effect=turn.effect, explained=part, sentences=(turn.text, said.why, said.then),
        evidence=(*said.evidence, *completeness(facts, place, turn.step, turn.found_at)),
        look_at=(*said.look_at, Look(place.axis, turn.step, _FIRST)),
    )  # fmt: skip


def _last_of(turn: Turn, values: Mapping[int, float]) -> int:
    """Return up to which step a metric has the new level: a way back takes longer to be told than this looks."""
    # Without steps before it is NaN, which nothing is nearer to: then the loop ends at once.
    old = median([values[step] for step in sorted(values) if step < turn.step][-BACK:] or [math.nan])
    new = median([value for step, value in values.items() if turn.step <= step <= turn.found_at])
    last = turn.found_at
    later = sorted(step for step in values if turn.found_at < step < turn.step + BACK)
    for start in range(0, len(later), _BLOCK):
        block = later[start : start + _BLOCK]
        level = median(values[step] for step in block)
        if not abs(level - new) < abs(level - old):
            break
        last = block[-1]
    return last


def _needed(
    facts: RunFacts, place: Place, turn: Turn, producers: Sequence[Producer], name: str, *, are_parts: bool
) -> str:
    """Return what would have to be recorded for more to be told."""
    if turn.effect is None and not producers:
        is_known = on_ranks(facts, place, name, turn.step) or step_time(facts, place).source != "account"
        return _NORMS if is_known else f"{_NORMS} {_WHICH_RANK}"
    if not producers and SeriesName(place.axis, f"{place.prefix}consumed/samples") in facts.history.series:
        return _STRANGERS
    if is_about_producers(facts, place, name):
        return _OF_PRODUCERS
    return _edge(producers, name, are_parts=are_parts) if producers else _LINKS


def _mostly(found: Responsible, name: str) -> str:
    them = listed([one.name for one in found.producers])
    return (
        f"{percent(found.part)} of it goes with the samples of {them}, not all: "
        f"without these {name} would be {measured(name, found.without)}."
    )


def _edge(producers: Sequence[Producer], name: str, *, are_parts: bool) -> str:
    if are_parts:
        return f"It is by the samples of no one producer: without any of them {name} would have changed, too."
    if any(one.values for one in producers):
        return (
            f"The values of its producers do not make up {name}: record one a sample, as many as `consumed()` counts."
        )
    return (
        f"An edge would tell: record {name} for each producer, too, with `rl.batch_reward(…, contexts=…)` "
        f"or `attributes={{{producers[0].role!r}: {producers[0].rank}}}`."
    )


def _points(values: Mapping[int, float]) -> ChangePoints:
    steps = sorted(values)
    return change_points(steps, [values[step] for step in steps])


def _turn(
    facts: RunFacts,
    place: Place,
    name: str,
    values: Mapping[int, float],
    points: ChangePoints,
    first: int | None,
    last: int | None,
) -> Turn | None:
    turns = [_level(name, change) for change in points.changes]
    broken = first_not_finite(values)
    if broken is not None:
        text = finite_no_more(name, values, broken, on_ranks(facts, place, name, broken))
        # Without an effect it counts as endless (`_size`), and comes before any change of level.
        turns.append(Turn(broken, broken, text, None))
    begin, end = range_of(first, last)
    there = [turn for turn in turns if begin <= turn.step <= end]
    # Of one step that is asked about: the change right before it, however small beside others.
    if first is not None and first == last:
        return max(there, key=lambda turn: turn.step, default=None)
    largest = max(there, key=_size, default=None)
    return next((turn for turn in there if largest is not None and _counts(turn, largest)), None)


def _counts(turn: Turn, largest: Turn) -> bool:
    is_opposite = (turn.effect or 0.0) * (largest.effect or 0.0) < 0
    return _size(turn) >= (_WAYBACK if is_opposite else _AS_LARGE) * _size(largest)


def _size(turn: Turn) -> float:
    return math.inf if turn.effect is None else abs(turn.effect)


def _level(name: str, change: Change) -> Turn:
    size = f", {change.size:.1f} times its scatter" if change.size < _VARIED_NOT else "; it did not vary before"
    verb = "rose" if change.by > 0 else "fell"
    text = (
        f"{name} {verb} at step {change.step:,} from {measured(name, change.before)} to {measured(name, change.after)} "
        f"({signed(measured(name, change.by))}{size})."
    )
    return Turn(change.step, change.found_at, text, change.by)


def _why(near: list[Evidence], turn: Turn) -> str:
    if near:
        return f"Coincided: {listed([one.text for one in near], 3)}; nothing shows that one led to the other."
    return (
        f"Cannot tell: nothing else that the run records changed within 3 steps of {turn.step:,}; "
        "log what may (learning rate, data source, policy version) and it is looked at."
    )


def _unchanged(
    facts: RunFacts,
    place: Place,
    name: str,
    values: Mapping[int, float],
    points: ChangePoints,
    first: int | None,
    last: int | None,
    producers: Sequence[Producer],
) -> Answer:
    steps = sorted(values)
    begin, end = steps[0] if first is None else first, steps[-1] if last is None else last
    return Answer(
        run=facts.id, about=name, role=place.role, axis=place.axis, first=first, last=last, verdict="cannot tell",
        effect=None, explained=0.0,
        sentences=_no_change(name, values, points, begin, end, place.axis),
        evidence=tuple(completeness(facts, place, begin, end)),
        levels=levels(facts, place, name, producers, (), [step for step in steps if begin <= step <= end][-USUAL:]),
    )  # fmt: skip


def _no_change(
    name: str, values: Mapping[int, float], points: ChangePoints, begin: int, end: int, axis: str
) -> tuple[str, str, str]:
    steps, asked = sorted(values), steps_text(begin, end, axis)
    newest = values[steps[-1]]
    if not any(begin <= step <= end for step in steps):
        return (
            f"{name} has no value in {asked}: it has {len(steps):,}, in {steps_text(steps[0], steps[-1], axis)}.",
            "Cannot tell: these steps were not recorded, or have not closed yet.",
            "Ask for a step that is there.",
        )
    if not points.values:
        none = f"{name} is not finite in {'' if begin == end else 'any of '}{asked}: its last value is {newest}."
        return none, "Cannot tell: there is no finite value to compare with.", _NORMS
    return (
        f"{name} has no change of level in {asked}.",
        _not_told(points),
        f"It has {plural(points.values, 'value')}; its last one is {measured(name, newest)}.",
    )


def _not_told(points: ChangePoints) -> str:
    if points.values < LEAST:
        return f"Cannot tell: a change takes {LEAST} values to be told from noise, and it has {points.values:,}."
    if not points.is_told:
        return (
            f"Cannot tell: its values follow one another (correlation {points.following:.2f}), as those of a random "
            "walk or a moving average do, so any level may be its own; log what it is the average of."
        )
    return (
        "Cannot tell more: what is smaller than about 2.5 times its scatter, or shorter than 7 steps, "
        "is not told from noise."
    )
