"""Which steps, and every how many: `every 20th step (19, 39, 59 and 5 more)`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from otel_ml_service.findings.wording import listed, ordinal

__all__ = ["how_often", "period", "regularly", "rows"]

_REGULAR = 0.8
"""Of the distances between long steps that are the same, for them to come every so many steps."""

_FIRST = 3
"""Rows of steps that are named; of the others it is told how many steps they are."""


def rows(steps: Iterable[int]) -> list[list[int]]:
    """Return steps that follow each other together.

    Examples:
        >>> rows([7, 8, 9, 40])
        [[7, 8, 9], [40]]
    """
    found: list[list[int]] = []
    for step in steps:
        if found and step == found[-1][-1] + 1:
            found[-1].append(step)
        else:
            found.append([step])
    return found


def period(steps: Sequence[int]) -> int | None:
    """Return every how many steps these come; None where they come as they like.

    Examples:
        >>> period((19, 39, 59, 79)), period((19, 39)), period((19, 20, 21, 22))
        (20, None, None)
    """
    distances = Counter(after - before for before, after in pairwise(steps))
    [(distance, count)] = distances.most_common(1) or [(0, 0)]
    # A distance of 1 is a row of steps: they come at once, and not every so often.
    return distance if count >= 2 and distance > 1 and count >= _REGULAR * distances.total() else None


def how_often(steps: Sequence[int], axis: str) -> str:
    """Return how often steps come, with the first ones.

    Examples:
        >>> how_often((19, 39, 59, 79), "step"), how_often((7, 8, 9, 40), "step"), how_often((5,), "rollout")
        (' every 20th step (19, 39, 59 and 1 more)', ' in steps 7-9 and 40', ' in rollout 5')
        >>> how_often((1, 2, 6, 13, 20, 30, 31), "step")  # the others are counted one by one
        ' in steps 1-2, 6, 13 and 3 more'
    """
    every, first = period(steps), rows(steps)[:_FIRST]
    parts = [f"{row[0]:,}" if len(row) == 1 else f"{row[0]:,}-{row[-1]:,}" for row in first]
    others = len(steps) - sum(map(len, first))
    which = f"{', '.join(parts)} and {others:,} more" if others else listed(parts)
    if every is not None:
        return f" every {ordinal(every)} {axis} ({which})"
    return f" in {axis}{'s' * (len(steps) > 1)} {which}"


def regularly(steps: Sequence[int], axis: str) -> str:
    """Return every how many steps these come, behind their numbers; nothing where they come as they like.

    Examples:
        >>> regularly((9, 19, 29), "step"), regularly((9, 19), "step")
        (', every 10th step', '')
    """
    every = period(steps)
    return "" if every is None else f", every {ordinal(every)} {axis}"
