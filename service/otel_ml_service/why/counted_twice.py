"""Steps in which ranks wait for one that is still in the step before: the same seconds are in both, and pass once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

__all__ = ["counted_twice", "passed_s"]

_TWICE = 0.8
"""Of what the shorter one of two steps is longer: so much less passed than both take, where these were done at once."""


def counted_twice(
    longer: Mapping[int, float], seconds: Mapping[int, float], times: Mapping[int, float]
) -> dict[int, float]:
    """Return step → seconds that the step before has, too, as the clock tells.

    The step before is long for one rank, and this one for those who wait for it.

    Args:
        longer: step → by how much it is longer than usual, of steps that are.
        seconds: step → how long it is.
        times: step → when it was recorded.

    Examples:
        A rank stands still for 4 s at the end of step 2, and the others wait for it in step 3:

        >>> seconds = {1: 1.0, 2: 5.0, 3: 5.0}
        >>> counted_twice({2: 4.0, 3: 4.0}, seconds, {1: 11.0, 2: 16.0, 3: 17.0})
        {3: 4.0}
        >>> counted_twice({2: 4.0, 3: 4.0}, seconds, {1: 11.0, 2: 16.0, 3: 21.0})
        {}
    """
    found: dict[int, float] = {}
    for before, step in pairwise(sorted(longer)):
        # Two steps share the same seconds, not three: what a step has from the one before it does not lend to the next.
        if step != before + 1 or before in found or before - 1 not in times or step not in times:
            continue
        passed_s, both = times[step] - times[before - 1], (seconds[before], seconds[step])
        twice_s, longer_s = sum(both) - passed_s, min(longer[before], longer[step])
        # Two steps do not pass in less than the longer one takes: where they seem to, a clock was set.
        if twice_s >= _TWICE * longer_s and passed_s >= _TWICE * max(both):
            found[step] = longer_s
    return found


def passed_s(seconds: Mapping[int, float], times: Mapping[int, float]) -> float:
    """Return the seconds that passed in steps: all that they took, those that two have counted once."""
    usual = float(np.median(np.fromiter(seconds.values(), np.float64, len(seconds))))
    longer = {step: of_it - usual for step, of_it in seconds.items() if of_it > usual}
    return sum(seconds.values()) - sum(counted_twice(longer, seconds, times).values())
