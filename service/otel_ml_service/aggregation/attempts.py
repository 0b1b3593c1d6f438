"""Which life of the job a writer belongs to (docs/protocol.md §5.7)."""

from __future__ import annotations

__all__ = ["Attempts"]


class Attempts:
    """Numbers the attempts of a run, with and without a launcher that counts.

    A launcher's own count starts again at 0 when a preempted job is submitted anew under the same experiment
    id, so it counts from an `offset`.

    Examples:
        >>> attempts = Attempts()
        >>> attempts.of(None), attempts.of(2), attempts.of(1)
        (0, 2, 1)
        >>> attempts.restart(0)      # a new job continues the run; its launcher counts from 0 again
        3
        >>> attempts.of(0), attempts.of(None), attempts.of(1)
        (3, 3, 4)
    """

    def __init__(self, newest: int = 0, offset: int = 0) -> None:
        self.newest = newest
        self._offset = offset

    def of(self, counted: int | None) -> int:
        """Return the attempt of a writer whose launcher says `counted`; a new highest one becomes the newest."""
        if counted is None:
            return self.newest
        ordinal = self._offset + counted
        self.newest = max(self.newest, ordinal)
        return ordinal

    def restart(self, counted: int | None) -> int:
        """Open the next attempt: a rank started again at or below what had closed."""
        self.newest += 1
        # So that what the new launcher counts as `counted` is this attempt.
        self._offset = self.newest - (counted or 0)
        return self.newest

    def state(self) -> list[int]:
        """Return the constructor's arguments."""
        return [self.newest, self._offset]
