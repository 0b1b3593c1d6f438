"""Which training step was current at a time: joins the axis `time` to steps (docs/protocol.md §4.7)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from otel_ml.wire.attributes import UNNAMED_ROLES

__all__ = ["TrainingClock"]

MAX_ENTRIES = 4096
"""Steps remembered at most; of more, the older half is forgotten: a point of the axis `time` from then has no step."""


class TrainingClock:
    """The first time each step was seen, from heartbeats and closed rows of one role: the trainer where there is one.

    Examples:
        >>> clock = TrainingClock()
        >>> clock.note("trainer", 0, 7, 1_000)
        >>> clock.note("trainer", 0, 8, 2_000)
        >>> clock.at(999), clock.at(1_500), clock.at(9_000)
        (None, 7, 8)
    """

    def __init__(self, role: str | None = None, entries: Iterable[tuple[int, int, int]] = ()) -> None:
        self._role = role
        self._entries: list[tuple[int, int, int]] = [tuple(entry) for entry in entries]  # type: ignore[misc]

    def note(self, role: str, attempt: int, step: int, time_ns: int) -> None:
        """Note that `role` was at `step` at `time_ns`."""
        if role != self._role:
            if self._role is not None and role not in UNNAMED_ROLES:
                return
            if self._role is not None and self._role in UNNAMED_ROLES:
                return
            self._role, self._entries = role, []
        if self._entries and (attempt, step) <= self._entries[-1][1:]:
            return
        if self._entries:
            time_ns = max(time_ns, self._entries[-1][0])
        self._entries.append((time_ns, attempt, step))
        if len(self._entries) > MAX_ENTRIES:
            del self._entries[: MAX_ENTRIES // 2]

    def at(self, time_ns: int) -> int | None:
        """Return the step current at `time_ns`, or None before the first."""
        place = bisect_right(self._entries, time_ns, key=lambda entry: entry[0])
        return self._entries[place - 1][2] if place else None

    def state(self) -> list[object]:
        """Return the constructor's arguments as plain data."""
        return [self._role, self._entries]
