"""Requests between the journal's thread, which puts them, and the engine's, which takes them a round at a time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from otel_ml_service.live_runs.undecided import Undecided

__all__ = ["EngineQueue"]

_ROUND_BYTES, _ROUND_S = 16 * 2**20, 0.5
"""Of requests that are observed before the runs advance and commit, and for how long: what a commit writes of open
steps it writes anew, and of 16,384 ranks that was a fourth of the engine's time in rounds of 4 MiB. A tight loop leaves
more behind: in one round its rows came two minutes later, all at once, and those of other runs waited for them."""

_SHARE_AHEAD = 8
"""32 MiB, as shipped: a fifth of a second of work."""

_LONGEST_HOLD_S = 1.0
"""How long a sender is kept waiting at most; it gives up after 10 s, and sends the same again."""


class EngineQueue:
    """What is in the journal, and not observed yet, in the order of the journal.

    Args:
        most: bytes of requests that may be undecided; once an eighth of it is here, who sends more is kept waiting.

    Attributes:
        put_in: how many were ever put here.
    """

    def __init__(self, most: int) -> None:
        self._ahead = most // _SHARE_AHEAD
        # Guards all that follows.
        lock = threading.Lock()
        self._changed, self._drained = threading.Condition(lock), threading.Condition(lock)
        self._entries: deque[Undecided] = deque()
        self._bytes = 0
        self._is_stopped = False
        self.put_in = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def is_stopped(self) -> bool:
        """Whether nobody is to wait anymore."""
        return self._is_stopped

    def put(self, entries: Sequence[Undecided]) -> None:
        """Add entries that are in the journal."""
        with self._changed:
            self._entries.extend(entries)
            self._bytes += _size(entries)
            self.put_in += len(entries)
            self._changed.notify()

    def wait_for_capacity(self, longest_s: float = _LONGEST_HOLD_S) -> bool:
        """Wait while more is here than an eighth of `most`, for a second at most; return whether no more is.

        Who is kept waiting here is so in turn. Told to come back, as at the bound on what is undecided, some get in and
        others do not: ranks that were side by side came 900 steps apart, all of which were open, and the service took a
        third of what it takes of ranks that stay together.
        """
        with self._changed:
            return self._drained.wait_for(lambda: self._bytes <= self._ahead or self._is_stopped, longest_s)

    def stop(self) -> None:
        """Keep nobody waiting anymore; what is here can be taken."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
            self._drained.notify_all()

    def take(self, wait_s: float = 0.0) -> list[Undecided]:
        """Return the entries of a round, after waiting for one where there are none."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._is_stopped, wait_s)
            entries: list[Undecided] = []
            left = _ROUND_BYTES
            while self._entries and left > 0:
                entries.append(self._entries.popleft())
                left -= entries[-1].size
            self._note_taken(entries)
        return entries

    def take_all(self) -> list[Undecided]:
        """Return all entries there are."""
        with self._changed:
            entries = list(self._entries)
            self._entries.clear()
            self._note_taken(entries)
        return entries

    def for_a_round(self, entries: Sequence[Undecided]) -> Iterator[Undecided]:
        """Yield entries for as long as a round takes; what is left then is the first here again."""
        until = time.monotonic() + _ROUND_S
        for place, entry in enumerate(entries, 1):
            yield entry  # one at least, however long the round before it took
            if time.monotonic() > until:
                self._put_back(entries[place:])
                return

    def _put_back(self, entries: Sequence[Undecided]) -> None:
        with self._changed:
            self._entries.extendleft(reversed(entries))
            self._bytes += _size(entries)

    def _note_taken(self, entries: Sequence[Undecided]) -> None:
        self._bytes -= _size(entries)
        self._drained.notify_all()


def _size(entries: Sequence[Undecided]) -> int:
    return sum(entry.size for entry in entries)
