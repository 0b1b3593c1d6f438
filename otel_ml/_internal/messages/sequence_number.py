"""A writer's running number, shared by every ScopeMetrics and log record it sends (`ml.seq`)."""

from __future__ import annotations

import itertools

__all__ = ["Sequence"]


class Sequence:
    """Count from 1, without gaps, from any thread.

    Examples:
        >>> sequence = Sequence()
        >>> sequence.next(), sequence.next()
        (1, 2)
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin at 1 again: a forked child is a new writer."""
        # `next()` of a C iterator is atomic under the GIL, and needs no lock that a fork could leave held.
        self.next = itertools.count(1).__next__
