"""What a backend will never have, counted by reason: once, however often its records are exported."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

__all__ = ["REASONS", "Losses"]

REASONS = 100
"""Reasons that are told apart; a backend may name the record in each of them."""

_TAKEN_BACK = 100_000
"""Losses, the newest, that are not counted twice where their records come again."""


class Losses:
    """Counted by the thread of one exporter.

    Args:
        before: reason → count, of what was lost before its service was started.
    """

    def __init__(self, before: Mapping[str, int]) -> None:
        self._counts = dict(before)
        self._newest: deque[tuple[int, str, int]] = deque(maxlen=_TAKEN_BACK)
        self._highest = 0  # `seq` among these; they are not in its order: names of a whole batch are refused first

    @property
    def counts(self) -> dict[str, int]:
        """Reason → values, and records without values."""
        return dict(self._counts)

    def __contains__(self, reason: str) -> bool:
        return reason in self._counts

    def add(self, seq: int, reason: str, count: int) -> None:
        """Count what the record `seq`, and those before it, had; nothing where its values were refused before."""
        if not count:
            return
        if reason not in self._counts and len(self._counts) >= REASONS:
            reason = "for other reasons"
        self._counts[reason] = self._counts.get(reason, 0) + count
        self._newest.append((seq, reason, count))
        self._highest = max(self._highest, seq)

    def up_to(self, seq: int) -> dict[str, int]:
        """Return reason → count without what records after `seq` had: after a kill these come again, and count then."""
        counts = self.counts
        # As a rule nothing is behind a mark; only then are up to 100,000 losses gone through.
        if seq < self._highest:
            for at, reason, count in self._newest:
                counts[reason] -= count if at > seq else 0
        return {reason: count for reason, count in counts.items() if count}

    def take_back(self, after: int) -> None:
        """Count no loss of a record that comes again, with `seq > after`: it is lost when it is refused again."""
        for _, reason, count in (loss for loss in self._newest if loss[0] > after):
            self._counts[reason] -= count
            if not self._counts[reason]:
                del self._counts[reason]
        kept = [loss for loss in self._newest if loss[0] <= after]
        self._newest.clear()
        self._newest.extend(kept)
        self._highest = min(self._highest, after)

    def forget(self) -> None:
        """Count none: all records are exported again, and tried again."""
        self._counts.clear()
        self._newest.clear()
        self._highest = 0
