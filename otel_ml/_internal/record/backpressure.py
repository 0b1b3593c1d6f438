"""The background threads as those see it who record: they wait for it where they are faster than it is."""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from contextlib import suppress

from otel_ml._internal.one_time_event import OneTimeEvent

__all__ = ["BACKPRESSURE", "Backpressure"]


class Backpressure:
    """Whoever takes what is recorded; `BACKPRESSURE` is the only one.

    Attributes:
        threads: their identifiers, one of each run; empty while nobody collects yet.
    """

    LOOK_S = 0.1
    TRIES = 100
    """How often and how long it is waited for: 10 s of a process that runs. One that was stopped, and goes on, has
    lost no patience."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start with nobody who collects, and nobody who waits."""
        self.threads: set[int] = set()
        self._starting = 0
        self._held_up: set[int] = set()
        self._is_stuck = False
        self._waiting: deque[OneTimeEvent] = deque()

    def expect(self) -> None:
        """Say that a thread that will collect is about to start: it is waited for as if it did already."""
        self._starting += 1

    def begin(self) -> None:
        """Be the thread that collects from now on."""
        self.threads.add(get_ident())
        # Not below 0: `forget()` may have come since `expect()`.
        self._starting = max(0, self._starting - 1)

    def not_started(self) -> None:
        """Say that the thread that was expected does not come."""
        self._starting = max(0, self._starting - 1)

    def hold_up(self, *, is_held_up: bool) -> None:
        """Say whether what this thread has encoded leaves more slowly than it comes."""
        (self._held_up.add if is_held_up else self._held_up.discard)(get_ident())

    @property
    def is_held_up(self) -> bool:
        """Whether callers in a tight loop wait for a receiver."""
        return bool(self._held_up)

    def leave(self) -> None:
        """Collect no more: nobody waits for this thread any longer."""
        self.threads.discard(get_ident())
        self._held_up.discard(get_ident())
        self.took()

    def is_here(self) -> bool:
        """Whether this is a thread that collects."""
        return get_ident() in self.threads

    def took(self) -> None:
        """Let those go on who wait: something was taken."""
        self._is_stuck = False
        with suppress(IndexError):  # the thread of another run takes from it, too
            # Not until it is empty: who is let go on may be waiting again already.
            for _ in range(len(self._waiting)):
                self._waiting.popleft().open()

    def wait(self) -> bool:
        """Wait until something was taken; return False where nobody collects, or has not for 10 s."""
        taken = OneTimeEvent()
        # Before it is asked again whether anybody collects: who takes in between has to find it here.
        if self._is_waited_for():
            self._waiting.append(taken)
        for _ in range(self.TRIES):
            if not self._is_waited_for():
                return False
            if taken.wait(self.LOOK_S):
                return True
        self._is_stuck = True
        return False

    def _is_waited_for(self) -> bool:
        # A thread that collects would wait for itself. Once 10 s were in vain nobody waits until something is taken.
        return bool(self.threads or self._starting) and not self.is_here() and not self._is_stuck


BACKPRESSURE = Backpressure()
