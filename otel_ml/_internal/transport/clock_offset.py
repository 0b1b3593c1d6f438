"""By how much another machine's clock is ahead of this one's, from questions and answers: never without its bound."""

from __future__ import annotations

__all__ = ["DRIFT", "ClockOffset"]

DRIFT = 1e-3
"""Seconds a second by which two clocks may drift apart: each is steered by NTP at 500 millionths at most."""


class ClockOffset:
    """What is known of a difference of two clocks that nobody sets, such as those since the machines were started.

    An answer was written after the question was sent and before it arrived here, so each exchange bounds the difference
    from both sides. Bounds of exchanges intersect, and widen with time by what clocks drift at most.

    Examples:
        >>> clock = ClockOffset()
        >>> clock.add(10.0, 3610.004, 10.01)
        >>> offset, bound = clock.at(10.01)
        >>> round(offset, 3), round(bound, 3)
        (3599.999, 0.005)
    """

    __slots__ = ("_high", "_low", "_of")

    def __init__(self) -> None:
        self._low = self._high = 0.0
        self._of: float | None = None

    def add(self, sent: float, theirs: float, received: float) -> None:
        """Take an exchange.

        Args:
            sent: when the question was sent, by this clock.
            theirs: when it was answered, by the other.
            received: when the answer was here, by this clock.
        """
        drifted = DRIFT * (received - sent)
        # The answer was written after the question was sent, and before it was received.
        low, high = theirs - received - drifted, theirs - sent + drifted
        known = self._bounds(received)
        if known is not None and max(low, known[0]) <= min(high, known[1]):
            low, high = max(low, known[0]), min(high, known[1])  # else the other machine is not the one it was
        self._low, self._high, self._of = low, high, received

    def at(self, now: float) -> tuple[float, float] | None:
        """Return the other clock less this one, and how far that may be off; None before the first exchange."""
        known = self._bounds(now)
        # The middle of the two bounds, and half of what lies between them.
        return None if known is None else ((known[0] + known[1]) / 2, (known[1] - known[0]) / 2)

    def _bounds(self, now: float) -> tuple[float, float] | None:
        if self._of is None:
            return None
        drifted = DRIFT * max(now - self._of, 0.0)
        return self._low - drifted, self._high + drifted
