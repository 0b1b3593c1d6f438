"""The metric that the time of steps goes up and down with, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from otel_ml_service.why.answer import Evidence
from otel_ml_service.why.coincidences import may_be_followed
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.step_time import StepTime

__all__ = ["follows", "follows_in_each_step"]

Floats = npt.NDArray[np.float64]

_FOLLOWS = 0.8
"""Correlation from which step time follows a metric."""

_REACH = 256
"""Steps before and after in which it has to."""

_AS_MANY = 32
"""Steps that a correlation needs."""

_Alike = Callable[[Iterable[int], StepTime, Mapping[int, float]], float]
"""(steps, their times, a metric) → how alike both go up and down."""


def follows(facts: RunFacts, place: Place, steps: Sequence[int], time: StepTime) -> list[Evidence]:
    """Return the metric that step time follows around these steps, where it follows one."""
    return _most_alike(facts, place, steps, time, _correlation)


def follows_in_each_step(facts: RunFacts, place: Place, steps: Sequence[int], time: StepTime) -> list[Evidence]:
    """Return the metric that step time follows from step to step, too: a loss falls as long as caches fill."""
    return _most_alike(facts, place, steps, time, _in_step)


def _most_alike(facts: RunFacts, place: Place, around: Sequence[int], time: StepTime, alike: _Alike) -> list[Evidence]:
    begin, end = around[0] - _REACH, around[-1] + _REACH
    steps = [step for step in time.seconds if begin <= step <= end]
    found = [(name, alike(steps, time, values)) for name, values in facts.series(place) if may_be_followed(name)]
    best = max(found, key=lambda entry: entry[1], default=("", 0.0))
    if best[1] < _FOLLOWS:
        return []
    return [Evidence("follows", None, f"step time follows {best[0]} (r = {best[1]:.2f})")]


def _in_step(near: Iterable[int], time: StepTime, values: Mapping[int, float]) -> float:
    both = _both(near, time, values)
    # Rows as they are, and their differences from step to step: of two that both only rise the first are alike whatever
    # they are.
    return min(_rank_correlation(both), _rank_correlation(np.diff(both, axis=1)))


def _correlation(near: Iterable[int], time: StepTime, values: Mapping[int, float]) -> float:
    return _rank_correlation(_both(near, time, values))


def _both(near: Iterable[int], time: StepTime, values: Mapping[int, float]) -> Floats:
    """Return the times (row 0) and the values (row 1) of the steps that have both."""
    steps = [step for step in near if step in values]
    return np.array([np.fromiter(map(of.__getitem__, steps), np.float64, len(steps)) for of in (time.seconds, values)])


def _rank_correlation(both: Floats) -> float:
    """Return the rank correlation (Spearman) of two rows; 0 of fewer than 32 steps, or without a change."""
    both = both[:, np.isfinite(both).all(axis=0)]
    # A correlation with what never changes is not defined (0 divided by 0).
    if both.shape[1] < _AS_MANY or (np.ptp(both, axis=1) == 0).any():
        return 0.0
    times, of_metric = both
    return float(np.corrcoef(_ranks(times), _ranks(of_metric))[0, 1])


def _ranks(values: Floats) -> Floats:
    """Return the place of each value among all; equal ones share the mean of theirs: a metric may have two values."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
