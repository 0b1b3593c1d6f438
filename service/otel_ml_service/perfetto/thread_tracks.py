"""Spans of one process as slices that nest: what overlaps without nesting is beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Ended", "ThreadTracks"]


class Ended(NamedTuple):
    """A span that is over: on which track, and when."""

    track: int
    time_ns: int


class _Open(NamedTuple):
    span: str
    end_ns: int


class ThreadTracks:
    """Puts spans, which come by their begin, on tracks: each has one thing going on, and what is inside of that.

    A span is inside of its parent. One whose parent is not there gets a track on which nothing goes on: another thread
    made it, not who is in a timer at that time. Spans that say their thread (`thread.name` of OpenTelemetry) have
    tracks of their own.

    Examples:
        >>> tracks = ThreadTracks()
        >>> list(tracks.over_by(0)), tracks.place("step", None, 10)
        ([], 0)
        >>> list(tracks.over_by(2)), tracks.place("forward", "step", 5), tracks.place("save", None, 20)
        ([], 0, 1)
        >>> list(tracks.over_by(10))
        [Ended(track=0, time_ns=5), Ended(track=0, time_ns=10)]
    """

    def __init__(self) -> None:
        self._stacks: list[list[_Open]] = []
        self._threads: list[str] = []
        self._track_of: dict[str, int] = {}

    @property
    def threads(self) -> list[str]:
        """The thread of each track; empty where it is not known."""
        return self._threads

    def over_by(self, time_ns: float) -> Iterator[Ended]:
        """Yield what ended until then, on each track in the order of its ends; to be asked before each `place`."""
        for track, stack in enumerate(self._stacks):
            # Nothing in a stack outlasts what is below it: the top ends first.
            while stack and stack[-1].end_ns <= time_ns:
                span, end_ns = stack.pop()
                self._track_of.pop(span, None)
                yield Ended(track, end_ns)

    def place(self, span: str, parent: str | None, end_ns: int, thread: str = "") -> int:
        """Return the track of a span that begins now."""
        track = self._free_track(parent, end_ns, thread)
        self._stacks[track].append(_Open(span, end_ns))
        self._track_of[span] = track
        return track

    def _free_track(self, parent: str | None, end_ns: int, thread: str) -> int:
        around = None if parent is None else self._track_of.get(parent)
        if around is not None and thread in {"", self._threads[around]}:
            last = self._stacks[around][-1]
            # Slices of a track have to nest: not where a sibling is still open, or where it outlasts its parent.
            if last.span == parent and end_ns <= last.end_ns:
                return around
        for track, stack in enumerate(self._stacks):
            if not stack and self._threads[track] == thread:
                return track
        self._stacks.append([])
        self._threads.append(thread)
        return len(self._stacks) - 1
