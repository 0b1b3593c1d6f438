"""After an outage those who lived through it are heard one by one, and who has just begun is heard first."""

from __future__ import annotations

import math

__all__ = ["LATE_S", "Outage"]

LATE_S = 10.0
"""A sender waits so long for an answer that does not come, and less long between two requests
(`_internal/transport/send.py`)."""


class Outage:
    """The newest time in which nobody was heard. It ends with the first word that this service hears, too.

    Args:
        silence_s: seconds without a word from anybody that are one.

    Examples:
        >>> outage = Outage(2.0)
        >>> outage.hear(100.0), outage.hides(99.0, 102.0, LATE_S), outage.hides(100.0, 102.0, LATE_S)
        (None, True, False)
        >>> outage.hear(101.0), outage.hides(99.5, 102.0, LATE_S)
        (None, True)
        >>> outage.hear(107.0), outage.hides(101.0, 108.0, LATE_S), outage.hides(101.0, 118.0, LATE_S)
        (None, True, False)
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._heard_at = self._ended_at = -math.inf

    def hear(self, now: float) -> None:
        """Somebody is heard."""
        if now - self._heard_at >= self._silence_s:
            self._ended_at = now
        self._heard_at = max(now, self._heard_at)

    def hides(self, heard_at: float, now: float, late_s: float) -> bool:
        """Whether of a writer that was heard last at `heard_at` more may come, at most `late_s` after the outage."""
        return heard_at < self._ended_at and now - self._ended_at < late_s
