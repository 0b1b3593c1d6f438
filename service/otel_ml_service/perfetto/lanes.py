"""Spans of one process as slices that nest: what overlaps without nesting is beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Ended", "Lanes"]


class Ended(NamedTuple):
    """A span that is over: in which lane, and when."""

    lane: int
    time_ns: int


class _Open(NamedTuple):
    span: str
    end_ns: int


class Lanes:
    """Puts spans, which come by their begin, into lanes: each has one thing going on, and what is inside of that.

    A span is inside of its parent. One whose parent is not there gets a lane in which nothing goes on: another thread
    made it, not who is in a timer at that time. Spans that say their thread (`thread.name` of OpenTelemetry) have
    lanes of their own.

    Examples:
        >>> lanes = Lanes()
        >>> list(lanes.over_by(0)), lanes.place("step", None, 10)
        ([], 0)
        >>> list(lanes.over_by(2)), lanes.place("forward", "step", 5), lanes.place("save", None, 20)
        ([], 0, 1)
        >>> list(lanes.over_by(10))
        [Ended(lane=0, time_ns=5), Ended(lane=0, time_ns=10)]
    """

    def __init__(self) -> None:
        self._stacks: list[list[_Open]] = []
        self._threads: list[str] = []
        self._lane_of: dict[str, int] = {}

    @property
    def threads(self) -> list[str]:
        """The thread of each lane; empty where it is not known."""
        return self._threads

    def over_by(self, time_ns: float) -> Iterator[Ended]:
        """Yield what ended until then, in each lane in the order of its ends; to be asked before each `place`."""
        for lane, stack in enumerate(self._stacks):
            while stack and stack[-1].end_ns <= time_ns:
                span, end_ns = stack.pop()
                self._lane_of.pop(span, None)
                yield Ended(lane, end_ns)

    def place(self, span: str, parent: str | None, end_ns: int, thread: str = "") -> int:
        """Return the lane of a span that begins now."""
        lane = self._lane(parent, end_ns, thread)
        self._stacks[lane].append(_Open(span, end_ns))
        self._lane_of[span] = lane
        return lane

    def _lane(self, parent: str | None, end_ns: int, thread: str) -> int:
        around = None if parent is None else self._lane_of.get(parent)
        if around is not None and thread in {"", self._threads[around]}:
            last = self._stacks[around][-1]
            if last.span == parent and end_ns <= last.end_ns:
                return around
        for lane, stack in enumerate(self._stacks):
            if not stack and self._threads[lane] == thread:
                return lane
        self._stacks.append([])
        self._threads.append(thread)
        return len(self._stacks) - 1
