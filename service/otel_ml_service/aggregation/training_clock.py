"""Which training step was current at a time: joins the axis `time` to steps (docs/protocol.md §4.7)."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from otel_ml.wire.attributes import UNNAMED_ROLES
from otel_ml_exporters.json_text import plain_json

__all__ = ["TrainingClock"]

MAX_ENTRIES = 4096
"""Steps remembered at most; of more, the older half is forgotten: a point of the axis `time` from then has no step."""

_BLOCK = 64
"""Steps in an entry of the state: a commit writes the last of them, and not what was written before."""


class TrainingClock:
    """The first time each step was seen, from heartbeats and closed rows of one role: the trainer where there is one.

    Examples:
        >>> clock = TrainingClock()
        >>> clock.note("trainer", 0, 7, 1_000)
        >>> clock.note("trainer", 0, 8, 2_000)
        >>> clock.at(999), clock.at(1_500), clock.at(9_000)
        (None, 7, 8)
    """

    def __init__(self) -> None:
        self._role: str | None = None
        self._entries: list[tuple[int, int, int]] = []
        # The state has them in numbered blocks, of which the first entry begins `_first`.
        self._first = self._first_stored = self._stored = 0

    def note(self, role: str, attempt: int, step: int, time_ns: int) -> None:
        """Note that `role` was at `step` at `time_ns`."""
        if role != self._role:
            # The trainer's steps take the place of any role's, and no role's take theirs.
            if self._role is not None and role not in UNNAMED_ROLES:
                return
            if self._role is not None and self._role in UNNAMED_ROLES:
                return
            self._role = role
            self._forget(len(self._entries))
        if self._entries and (attempt, step) <= self._entries[-1][1:]:
            return
        if self._entries:
            time_ns = max(time_ns, self._entries[-1][0])  # clocks of hosts differ, and `at` looks in order
        self._entries.append((time_ns, attempt, step))
        if len(self._entries) > MAX_ENTRIES:
            self._forget(MAX_ENTRIES // 2)

    def at(self, time_ns: int) -> int | None:
        """Return the step current at `time_ns`, or None before the first."""
        place = bisect_right(self._entries, time_ns, key=lambda entry: entry[0])
        return self._entries[place - 1][2] if place else None

    def _forget(self, entries: int) -> None:
        """Forget the oldest ones; the next one begins a block."""
        del self._entries[:entries]
        # Rounded up: where another role takes over, the last block is not full, and goes as well.
        self._first += -(-entries // _BLOCK)
        self._stored = max(0, self._stored - entries)

    @property
    def role(self) -> str | None:
        """Whose steps these are; None before the first."""
        return self._role

    def changes(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield the blocks that changed since the last call, by number; None where one is gone."""
        yield from ((block, None) for block in range(self._first_stored, self._first))
        # From the block on that was not full when it was written.
        begins = self._stored // _BLOCK * _BLOCK if self._stored < len(self._entries) else self._stored
        for place in range(begins, len(self._entries), _BLOCK):
            yield self._first + place // _BLOCK, plain_json(self._entries[place : place + _BLOCK])
        self._first_stored, self._stored = self._first, len(self._entries)

    def restore(self, role: str | None, blocks: Mapping[int, bytes]) -> None:
        """Go on from what `changes` has yielded."""
        self._role = role
        self._entries = [tuple(entry) for number in sorted(blocks) for entry in json.loads(blocks[number])]
        self._first = self._first_stored = min(blocks, default=0)
        self._stored = len(self._entries)
