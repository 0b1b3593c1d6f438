"""How much the times of each phase scatter from step to step, of ranks that are as quick as ever."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from otel_ml_service.findings.medians import middle

__all__ = ["Scatter"]

Floats = npt.NDArray[np.float64]

_AT_FIRST, _LOOKS_AT_FIRST = 0.03, 4.0
_STEPS = 24.0
"""The scatter is learned over about so many steps, from a guess that counts as four."""
_OF_DIFFERENCES = 0.954
"""Median of |a − b| of two draws of a normal distribution with deviation 1."""


class Scatter:
    """The deviation of slow-downs, learned from their changes.

    A culprit that stays slow does not scatter more, and the median over ranks does not mind one that does.

    Attributes:
        of_phases: of each phase, as a share.
        seen: the same as it was seen so far, from the first two steps on; 0 before: no guess holds it down where times
            vary by half of themselves.
    """

    def __init__(self) -> None:
        self.of_phases: Floats = np.zeros(0)
        self.seen: Floats = np.zeros(0)
        self._looks: Floats = np.zeros(0)

    def grow(self, phases: int) -> None:
        """Know that there are so many phases now."""
        new = phases - len(self.of_phases)
        self.of_phases = np.concatenate((self.of_phases, np.full(new, _AT_FIRST)))
        self.seen = np.concatenate((self.seen, np.zeros(new)))
        self._looks = np.concatenate((self._looks, np.full(new, _LOOKS_AT_FIRST)))

    def learn(self, changes: Floats) -> None:
        """Learn from how slow-downs changed since the step before: [ranks, phases], NaN where nobody knows."""
        low, high = middle(np.abs(changes), least=2)
        found = (low + high) / 2 / _OF_DIFFERENCES
        known = ~np.isnan(found)
        upper = 2 * found - low / _OF_DIFFERENCES  # of two ranks one does not change
        self._looks = np.where(known, np.minimum(self._looks + 1, _STEPS), self._looks)
        # Without the looks that the guess counts for: that is part of `of_phases` alone.
        self.seen = self.seen + np.where(known, (upper - self.seen) / (self._looks - _LOOKS_AT_FIRST), 0.0)
        # One step in which all ranks change, as at the end of a pause, is not how they scatter.
        found = np.minimum(found, 3 * self.of_phases + 0.01)
        self.of_phases = self.of_phases + np.where(known, (found - self.of_phases) / self._looks, 0.0)
