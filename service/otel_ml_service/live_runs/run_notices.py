"""What a run has to tell, from any thread, until it is kept with a commit."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from otel_ml.explanation import explained
from otel_ml_service.receiver.partial_success import Rejected

__all__ = ["RunNotices"]

_REJECTED_KINDS = 20
"""Senders and reasons of rejected points that a run names."""


class RunNotices:
    """Sentences that wait for the next commit.

    Args:
        kept: those of the commits so far, as they grow.
    """

    def __init__(self, kept: Sequence[str]) -> None:
        self._kept = kept
        self._said: deque[str] = deque()
        self._rejected_kinds: set[tuple[str, str]] = set()

    def __bool__(self) -> bool:
        return bool(self._said)

    def say(self, slug: str, sentence: str) -> None:
        """Add a notice, from any thread; it is kept with the next commit."""
        self._said.append(explained(sentence, slug))

    def say_rejected(self, rejected: Rejected) -> None:
        """Say it once for each sender and kind of reason."""
        if rejected.kind in self._rejected_kinds or len(self._rejected_kinds) > _REJECTED_KINDS:
            return
        self._rejected_kinds.add(rejected.kind)
        if len(self._rejected_kinds) > _REJECTED_KINDS:
            self.say("rejected-points", "Points of further senders or for further reasons are rejected, and counted.")
        elif rejected.sentence not in self._kept:  # before a restart
            self._said.append(rejected.sentence)

    def take(self) -> Sequence[str]:
        """Hand out what was said by now."""
        return [self._said.popleft() for _ in range(len(self._said))]
