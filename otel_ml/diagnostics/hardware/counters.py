"""Counters of the hardware, which only grow: what was added since they were read last."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Counters"]


class Counters:
    """Remembers the newest reading of each counter.

    Examples:
        >>> counters = Counters()
        >>> counters.grown("energy", 100), counters.grown("energy", 130), counters.grown("energy", 5)
        (None, 30, None)
    """

    def __init__(self) -> None:
        self._newest: dict[Hashable, float] = {}

    def grown(self, key: Hashable, reading: float) -> float | None:
        """Return the increase; None at the first reading, and where the counter began anew: that is unknown."""
        before = self._newest.get(key)
        self._newest[key] = reading
        return None if before is None or reading < before else reading - before
