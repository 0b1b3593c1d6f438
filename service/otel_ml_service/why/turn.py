"""Where a metric changed: a level, at once or by and by, or from numbers to none."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["BACK", "Turn", "range_of"]

BACK = 64
"""A step is asked about for a change that began at most so many steps before."""


class Turn(NamedTuple):
    """A change of a metric.

    Attributes:
        step: the first one with it.
        found_at: the step with which it was certain.
        text: a sentence.
        effect: by how much it rose; None where it is no longer a number.
    """

    step: int
    found_at: int
    text: str
    effect: float | None


def range_of(first: int | None, last: int | None) -> tuple[float, float]:
    """Return the steps in which a change counts that is asked about with `first` and `last`.

    Examples:
        >>> range_of(100, 120), range_of(412, 412), range_of(None, None)
        ((100, 120), (348, 412), (-inf, inf))
    """
    begin = -math.inf if first is None else first - BACK if first == last else first
    return begin, math.inf if last is None else last
