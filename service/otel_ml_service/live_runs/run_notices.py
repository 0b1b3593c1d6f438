"""What a run has to tell, from any thread, until it is kept with a commit; and which process of the job prints it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from otel_ml.explanation import explained
from otel_ml_service.receiver.partial_success import Rejected

__all__ = ["PrintingProcess", "RunNotices"]

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
        # The first kind beyond the bound is the one at which it is said that there are more.
        self._rejected_kinds.add(rejected.kind)
        if len(self._rejected_kinds) > _REJECTED_KINDS:
            self.say("rejected-points", "Points of further senders or for further reasons are rejected, and counted.")
        elif rejected.sentence not in self._kept:  # before a restart
            self._said.append(rejected.sentence)

    def take(self) -> Sequence[str]:
        """Hand out what was said by now."""
        # As many as there are now: other threads add to it meanwhile.
        return [self._said.popleft() for _ in range(len(self._said))]


_TIMEOUT_S = 10.0
"""Seconds for which news may wait for the process that prints, before another one that asks is given them."""


class PrintingProcess:
    """Rank 0 of each role would print, and one finding is one message: it is one process at a time.

    Another one takes over when it has left, or leaves news lying.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._who = ""
        self._first = 0
        self._waiting_since: float | None = None

    def first_for(self, who: str, told: int, notices: int, left: Collection[str]) -> int | None:
        """Return the number of the first notice that is for `who`, who asks; None where somebody else prints.

        Args:
            who: instance of the writer that asks.
            told: notices that a process that prints has been given.
            notices: that there are.
            left: writers that have said that they end.
        """
        if who != self._who and (not self._who or self._who in left or self._is_impatient(told, notices)):
            # What the process before was given counts as printed: this one goes on behind that.
            self._who, self._first = who, told
        if who != self._who:
            return None
        self._waiting_since = None
        return self._first

    def _is_impatient(self, told: int, notices: int) -> bool:
        if told >= notices:
            return False
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since >= _TIMEOUT_S
