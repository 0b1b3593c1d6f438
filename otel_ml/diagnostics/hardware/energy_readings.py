"""Joules between moments, out of readings of a growing counter; no clock, no device."""

from __future__ import annotations

__all__ = ["Ledger"]


class Ledger:
    """Cuts a counter's growth at moments that lie between its readings.

    Attributes:
        is_counting: what is used now counts.
        total: of all that counted; None until anything did.

    Examples:
        A lap ends at 2 s; the counter is read at 4 s, half of what it grew since 0 s is of the lap:

        >>> ledger = Ledger()
        >>> ledger.advance(0.0, 0.0, 100.0)
        >>> ledger.is_counting = True
        >>> ledger.advance(2.0, 4.0, 140.0)
        >>> ledger.lap()
        (20.0, 2.0)
    """

    def __init__(self) -> None:
        self.is_counting = False
        self.total: float | None = None
        self._at: tuple[float, float] | None = None
        self._joules: float | None = 0.0
        self._seconds = 0.0

    def advance(self, moment: float, now: float, joules: float | None) -> None:
        """Go on to `moment`, given the counter's reading at `now`, not before it."""
        before = self._at
        self._at = None if joules is None else (now, joules)
        # Growth is taken as even between two readings; a moment before the last reading has none of its own.
        if joules is not None and before is not None and before[0] <= moment:
            since, known = before
            share = 1.0 if now <= since else max(0.0, min(1.0, (moment - since) / (now - since)))
            # Below 0 where the counter began anew.
            grown = joules - known
            if grown >= 0:
                self._at = (moment, min(joules, known + grown * share))  # rounded up it would seem to go back next
                self._count(grown * share, moment - since)
                return
        if self.is_counting:  # the counter is silent, or began anew: how much this lap used is unknown
            self._joules = None

    def lap(self) -> tuple[float | None, float]:
        """Return joules (None where they are not known) and counted seconds since the lap before."""
        lap = (self._joules, self._seconds)
        self._joules, self._seconds = 0.0, 0.0
        return lap

    def _count(self, joules: float, seconds: float) -> None:
        if not self.is_counting:
            return
        self.total = (self.total or 0.0) + joules
        self._seconds += seconds
        if self._joules is not None:
            self._joules += joules
