"""When the background threads of a job do their work: all at the same moments of the wall clock.

Ranks that train in lock-step wait for the slowest. Where each rank is disturbed in another step, every step is
disturbed; where all are in the same step, only that one is (Petrini, Kerbyson, Pakin, «The Case of the Missing
Supercomputer Performance», 2003). And what all ranks have to say of a step arrives together, so that the service
commits it once. ADR 0015 has the measurement.
"""

from __future__ import annotations

__all__ = ["TICK", "sooner_at", "until_tick"]

TICK = 0.1
"""Seconds between looks; what a `kill -9` may cost (CONTRACT §3: the spool is written every 100 ms)."""

_EARLY = 0.001
"""A clock that is being adjusted may wake us so much before the tick: that was it."""


def until_tick(now: float) -> float:
    """Return the seconds from `now` (since the epoch) to the next tick.

    >>> round(until_tick(1700000000.03), 3)
    0.07
    >>> round(until_tick(1700000000.0999), 3)  # woken a little early
    0.1
    """
    return TICK + _EARLY - (now + _EARLY) % TICK


def sooner_at(now: float, interval: float) -> float:
    """Return from when on a step boundary is reason to send, where `now` (since the epoch) something was sent.

    That is the full half of `interval` seconds which is nearest to half an interval from now.

    >>> sooner_at(1700000000.02, 1.0), sooner_at(1700000000.4, 1.0)
    (1700000000.5, 1700000001.0)
    """
    half = interval / 2
    return round(now / half + 1) * half
