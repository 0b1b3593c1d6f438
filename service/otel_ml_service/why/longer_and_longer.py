"""Steps that take longer and longer: no level changes, and the last ones are far from the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from otel_ml.quantities import seconds
from otel_ml_service.findings.phases import UNTIMED
from otel_ml_service.findings.wording import signed, steps_text
from otel_ml_service.why.answer import Answer, Look
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.step_paths import by_paths
from otel_ml_service.why.step_time import StepTime, account, calm_steps

__all__ = ["grow", "told_to_grow"]

_NOTICED = 0.1
"""Of the first steps: the last ones are longer by more."""

_ORDERED = 0.6
"""Rank correlation of the time of a step with its number."""

_AT_ONCE = 0.8
"""Part of the growth that comes from one fourth to the next: then it is another level."""

_LEAST = 64
"""Steps that it takes, in four parts each of which is longer than the one before."""


def grow(time: StepTime, steps: Sequence[int]) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return the first and the last fourth of steps that take longer and longer; None where they do not."""
    quarter = len(steps) // 4
    if len(steps) < _LEAST:
        return None
    # Where four does not divide their number, up to three of the last steps are in no part.
    calm = [calm_steps(time, steps[at * quarter : (at + 1) * quarter]) for at in range(4)]
    levels = [time.usual_s(part) for part in calm]
    # Each fourth is longer than the one before: of equal ones the set has fewer.
    is_longer = levels == sorted(set(levels)) and levels[-1] > (1 + _NOTICED) * levels[0]
    is_another_level = max(np.diff(levels)) >= _AT_ONCE * (levels[-1] - levels[0])
    if not is_longer or is_another_level or _order([time.seconds[step] for part in calm for step in part]) < _ORDERED:
        return None
    return calm[0], calm[-1]


def _order(values: Sequence[float]) -> float:
    # The order of the order is the place of each value among all.
    ranks = np.argsort(np.argsort(values))
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


def told_to_grow(facts: RunFacts, place: Place, time: StepTime, whole: Answer) -> Answer | None:
    """Return the answer about steps that take longer and longer.

    None where they do not, or follow the data, and where there are usual steps to compare them with.
    """
    begin, end = whole.first or 0, whole.last or 0
    parts = grow(time, [step for step in sorted(time.seconds) if begin <= step <= end])
    if parts is None or whole.verdict == "coincided" or whole.effect is not None:
        return None
    first, last = parts
    paths = by_paths(facts, place, time, first, last)
    phases = account(paths, *([step for step in part if step in paths.seconds] for part in (last, first)))
    at_first, at_last = (time.usual_s(part) for part in (first, last))
    longest = max(last, key=lambda step: time.seconds[step])
    where = "no timer says in what"
    if phases:
        name = "no timer" if phases[0].name == UNTIMED else phases[0].name
        where = f"{signed(seconds(phases[0].seconds - (phases[0].usual_s or 0.0)))} of it is in {name}"
    which = steps_text(begin, end, place.axis).capitalize()
    of = "" if place.prefix == "" else f" of {place.role}"
    return replace(
        whole,
        verdict="cannot tell",
        effect=time.usual_s([step for step in time.seconds if begin <= step <= end]) - at_first,
        explained=0.0,
        sentences=(
            f"{which}{of} took longer and longer: {seconds(at_first)} each in "
            f"{steps_text(first[0], first[-1], place.axis)}, {seconds(at_last)} in "
            f"{steps_text(last[0], last[-1], place.axis)}.",
            f"Cannot tell: {where}, and nobody was found slow.",
            f"Look for what grows with each {place.axis}: a list that is kept, a cache, a file; "
            f"look at {place.axis} {longest:,}.",
        ),
        account=phases,
        adds_up=paths.adds_up,
        of_rank=paths.of_rank,
        look_at=(Look(place.axis, longest, f"the longest one at last, {seconds(time.seconds[longest])}"),),
    )
