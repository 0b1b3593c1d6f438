"""How fast one connection may ask: nothing is refused, it is read later."""

from __future__ import annotations

import math

__all__ = ["REQUESTS_PER_S", "RateLimit"]

REQUESTS_PER_S = 1000
"""A worker sends one or two a second, a Collector some hundred."""


class RateLimit:
    """A bucket that holds the requests of one second.

    Examples:
        >>> pace = RateLimit(rate=2)
        >>> [pace.wait(now) for now in (0.0, 0.0, 0.0, 0.25, 9.0)]
        [0.0, 0.0, 0.5, 0.75, 0.0]
    """

    def __init__(self, rate: float = REQUESTS_PER_S) -> None:
        self._rate = rate
        self._left = rate
        self._at = -math.inf

    def wait(self, now: float) -> float:
        """Count a request, and return the seconds after which the next one may be read."""
        self._left = min(self._rate, self._left + (now - self._at) * self._rate) - 1
        self._at = now
        return max(0.0, -self._left / self._rate)
