"""At which steps a tensor is looked at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EVERY_STEP", "Schedule"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every `freq`-th step inside the ranges.

    Attributes:
        freq: a step counts where it is a multiple of it.
        ranges: (first, last), both inside; None has no end. Without ranges every step counts.

    Examples:
        >>> schedule = Schedule(freq=2, ranges=((0, 2), (10, None)))
        >>> [step for step in range(14) if schedule.includes(step)]
        [0, 2, 10, 12]
    """

    freq: int = 1
    ranges: tuple[tuple[int, int | None], ...] = ()

    def includes(self, step: int) -> bool:
        """Return whether tensors are looked at in this step."""
        if step % self.freq:
            return False
        return not self.ranges or any(first <= step and (last is None or step <= last) for first, last in self.ranges)


EVERY_STEP = Schedule()
