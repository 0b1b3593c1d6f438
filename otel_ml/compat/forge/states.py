"""States of torchforge's own accumulators, in the words of ours: a mesh may hold both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_ml.compat.forge.accumulators import MetricAccumulator

__all__ = ["KNOWN", "State", "in_our_words"]

State = Mapping[str, Any]
"""Plain data that travels between processes; `reduction_type` names the accumulator it is of."""

KNOWN: dict[str, type[MetricAccumulator]] = {}
"""Accumulators by what their states name."""

_OUR_WORD = {"total": "sum", "max_val": "max", "min_val": "min"}


def in_our_words(states: Iterable[State]) -> list[State]:
    """Return states with our keys; ours as they are.

    torchforge sends states only of what has taken a value: a sum that does not say of how many is of one or more.

    Examples:
        >>> in_our_words([{"max_val": 7.0}, {"total": 5.0}, {"sum": 3.0, "sum_sq": 5.0, "count": 2}])
        [{'max': 7.0}, {'count': 1, 'sum': 5.0}, {'count': 2, 'mean': 1.5, 'm2': 0.5}]
    """
    return [_moments(state) if "sum_sq" in state and "m2" not in state else _renamed(state) for state in states]


def _renamed(state: State) -> State:
    if not _OUR_WORD.keys() & state.keys():
        return state
    named = {_OUR_WORD.get(key, key): value for key, value in state.items()}
    # Ours has a count of its own, which replaces the 1.
    return {"count": 1, **named} if "total" in state else named


def _moments(state: State) -> State:
    count, total = state["count"], state["sum"]
    mean = total / count if count else 0.0
    # The difference of two large sums may come out just below 0, of which there is no root.
    return {"count": count, "mean": mean, "m2": max(state["sum_sq"] - mean * total, 0.0)}
