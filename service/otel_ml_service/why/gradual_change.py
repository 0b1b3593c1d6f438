"""A metric that changes by and by, since the samples of one producer changed at once.

How many of a producer's samples a step takes is a matter of queues. So a metric may fall over many steps, and have no
change of level, where the samples that it is the mean of have one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from otel_ml_service.findings.change_points import change_points
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import signed
from otel_ml_service.why.mean import mean
from otel_ml_service.why.producers import USUAL, Producer, are_parts_of, responsible_for
from otel_ml_service.why.turn import BACK, Turn, range_of

__all__ = ["gradual_turn"]

_SURE = 4.0
"""Standard errors by which the metric is another one, at least."""


def gradual_turn(
    name: str, values: Mapping[int, float], producers: Sequence[Producer], first: int | None, last: int | None
) -> tuple[Turn, int] | None:
    """Return the change that came by the samples of one producer, and the last step of it; None where there is none.

    Args:
        name: of the metric.
        values: of the metric.
        producers: of what it is the mean of.
        first: of the steps that are asked about; None for any.
        last: of these.
    """
    begin, end = range_of(first, last)
    found = [
        turn
        for one in producers
        for since, found_at, until in _levels(one)
        if begin <= since <= end and (turn := _turn(name, values, producers, one, since, found_at, until)) is not None
    ]
    return max(found, key=lambda one: abs(one[0].effect or 0.0), default=None)


def _levels(one: Producer) -> list[tuple[int, int, int]]:
    """Return where a producer's samples changed at once: the first step, that with which it was certain, the last."""
    steps = sorted(one.values)
    changes = change_points(steps, [one.values[step] for step in steps]).changes
    # A level ends where the next one begins, the last one with the last step.
    ends = [*(change.step for change in changes[1:]), steps[-1] + 1][: len(changes)] if steps else []
    return [
        (change.step, change.found_at, min(end, change.step + BACK) - 1)
        for change, end in zip(changes, ends, strict=True)
    ]


def _turn(
    name: str,
    values: Mapping[int, float],
    producers: Sequence[Producer],
    one: Producer,
    since: int,
    found_at: int,
    until: int,
) -> tuple[Turn, int] | None:
    before = [values[step] for step in sorted(values) if step < since][-USUAL:]
    after = [value for step, value in values.items() if since <= step <= until]
    if not _differ(before, after) or not are_parts_of(producers, values, since, until):
        return None
    responsible = responsible_for(producers, since, until)
    if responsible is None or one not in responsible.producers:
        return None
    old, new = mean(before), mean(after)
    text = (
        f"{name} {'rose' if new > old else 'fell'} by and by from step {since:,} on: it had {measured(name, old)} "
        f"before, {measured(name, new)} since then ({signed(measured(name, new - old))})."
    )
    return Turn(since, found_at, text, new - old), until


def _differ(before: Sequence[float], after: Sequence[float]) -> bool:
    if min(len(before), len(after)) < 2 or not all(map(math.isfinite, [*before, *after])):
        return False
    with np.errstate(over="ignore", invalid="ignore"):  # of the largest doubles nothing is told
        error = np.sqrt(np.var(before) / len(before) + np.var(after) / len(after))
        return bool(abs(np.mean(after) - np.mean(before)) > _SURE * error)
