"""Whether the other ranks wait for a slow one: where they do, it does not fall behind them.

Timers alone do not tell. Nobody has to time its waiting, and generators that go on have the same timers as ranks that
meet in each step. But a rank that nobody waits for ends each step later than the others, by as much more as it is slow;
one that they wait for does so once at most. What is compared is how long it was from the end of a step to that of the
next one, by the clock of each rank: clocks of hosts may differ.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.medians import low_median
from otel_ml_service.findings.step_timers import StepTimers

__all__ = ["WhoWaits"]

_REMEMBERED = 64
"""Steps."""
_LEAST = 3
"""Steps that tell: a rank that is waited for after its last timer ends the first one later than the others, too."""
_MOSTLY = 0.5
"""Of what a rank takes longer: if it falls behind by as much in a step, most others do not wait for it."""


class _Ends(NamedTuple):
    """When ranks, ascending, ended a step by their clocks, and the seconds that each has timed in it."""

    ranks: npt.NDArray[np.int64]
    ended_ns: npt.NDArray[np.int64]
    timed_s: npt.NDArray[np.float64]


class _Interval:
    """From the end of a step to the end of the next one, `step`."""

    def __init__(self, step: int, before: _Ends, now: _Ends) -> None:
        self.step = step
        self._before, self._now = before, now

    @cached_property
    def later_s(self) -> dict[int, float]:
        """Rank → seconds that it needed longer than the one in the middle; a clock that was set adds a step at most."""
        # Worked out when it is asked for: in most jobs nobody is slow.
        ranks, old, new = np.intersect1d(self._before.ranks, self._now.ranks, assume_unique=True, return_indices=True)
        took = (self._now.ended_ns[new] - self._before.ended_ns[old]) / 1e9
        later = np.minimum(took - low_median(took[:, None]), self._now.timed_s[new])
        return dict(zip(ranks.tolist(), later.tolist(), strict=True))


class WhoWaits:
    """Remembers when ranks ended the last steps."""

    def __init__(self) -> None:
        self._last: _Ends | None = None
        self._intervals: deque[_Interval] = deque(maxlen=_REMEMBERED)

    def add(self, step: int, timers: StepTimers) -> None:
        """Take a step."""
        if not timers.ended_ns:
            return
        ended = np.array(timers.ended_ns, dtype=np.int64)
        now = _Ends(
            np.array(timers.ranks, dtype=np.int64),
            ended,
            np.add.reduce(timers.seconds, axis=1, where=~np.isnan(timers.seconds)),
        )
        if self._last is not None:
            self._intervals.append(_Interval(step, self._last, now))
        self._last = now

    def others_wait(self, rank: int, since: int, longer_s: float) -> bool | None:
        """Return whether most others wait for a rank; None where that is not known.

        Args:
            rank: that is slow.
            since: its first slow step.
            longer_s: what it takes longer in a step, mean since then.
        """
        steps, behind_s = 0, 0.0
        for interval in self._intervals:
            if interval.step >= since and (later := interval.later_s.get(rank)) is not None:
                # Never below 0: to have been quicker in some steps does not make up for falling behind afterwards.
                steps, behind_s = steps + 1, max(behind_s + later, 0.0)
        return behind_s < _MOSTLY * longer_s * steps if steps >= _LEAST else None
