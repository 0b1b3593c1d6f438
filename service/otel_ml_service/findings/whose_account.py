"""Whose account the time of steps is: that of all ranks, or, where phases take turns, of the one that works longest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from otel_ml_service.findings.peers import is_pipeline

__all__ = ["account_rank", "of_rank_text"]

_MOSTLY = 0.5
"""Part of a phase's steps in which its rank is that of the others."""


def account_rank(ranks: Mapping[str, Mapping[int, float]]) -> int | None:
    """Return the rank whose account that of most steps is; None where it is that of all of them.

    Args:
        ranks: phase → step → the rank at the front, as it is published.

    Examples:
        >>> account_rank({"forward-recv": {0: 5.0, 1: 5.0, 2: 4.0}, "forward": {0: 5.0, 1: 5.0, 2: 4.0}})
        5
        >>> account_rank({"all_reduce": {0: 5.0, 1: 5.0}, "forward": {0: 5.0, 1: 5.0}})
    """
    if not is_pipeline(tuple(ranks)):
        return None
    longest = max(ranks.values(), key=len)
    if any(len(of_it.items() & longest.items()) <= _MOSTLY * len(of_it) for of_it in ranks.values() if of_it):
        return None
    # A program may write anything into series of these names.
    known = Counter(rank for rank in longest.values() if 0 <= rank < math.inf)
    return next((int(rank) for rank, _ in known.most_common(1)), None)


def of_rank_text(rank: int, run: str, step: int | str) -> str:
    """Return whose account it is, and how to see that of all ranks.

    Examples:
        >>> of_rank_text(5, "pipeline-1", 27)
        'of rank 5, which works longest; for the path through all ranks: otel-ml why pipeline-1 27'
    """
    return f"of rank {rank}, which works longest; for the path through all ranks: otel-ml why {run} {step}"
