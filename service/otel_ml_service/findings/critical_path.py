"""The longest path through the spans of a step: what the slowest rank worked at, and whom it waited for.

It is followed backwards from the end of the slowest rank's step. Where the rank worked, that is on the path. Where it
waited for another one, the path goes on with that one: who entered a collective last, who sent what was received. So
each moment of the step belongs to one phase of one rank, and all of them add up to the step, to the nanosecond.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_exporters.records import Span
from otel_ml_service.findings.frontier import Exposed
from otel_ml_service.findings.nesting import contains, of_steps
from otel_ml_service.findings.phases import (
    NOTHING_SAID,
    STEP,
    UNTIMED,
    TimerKind,
    accuses,
    is_between_stages,
    is_routed,
)

__all__ = ["NOT_BEGUN", "Segment", "account_of", "critical_path"]

_TOGETHER_NS, _TOGETHER = 1_000_000, 0.1
"""Who waits for each other in a collective leaves it within a millisecond, or a tenth of the time spent in it."""

_RECEIVES = re.compile(r"recv|receive", re.IGNORECASE)
_SENDS = re.compile(r"send", re.IGNORECASE)

_Messages = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


NOT_BEGUN = "not begun"
"""The phase of what a rank did before its own step, where another one waited for it."""


class Segment(NamedTuple):
    """A part of the path; `span_id` is empty for what is in no timer."""

    phase: str
    rank: int
    start_ns: int
    end_ns: int
    span_id: str = ""


class _Piece(NamedTuple):
    """A stretch of a rank's time, and the span that counts in it: the innermost one that works, else that waits."""

    start_ns: int
    end_ns: int
    span: Span | None
    is_of_step: bool = True


class _Came(NamedTuple):
    """Who was waited for, and until when."""

    rank: int
    at_ns: int


def critical_path(
    of_rank: Mapping[int, Sequence[Span]], kinds: Mapping[str, TimerKind] = NOTHING_SAID
) -> list[Segment]:
    """Return the longest path through a step, from its beginning to its end; empty without spans.

    Args:
        of_rank: spans of one step, of each rank.
        kinds: what timers were declared to measure; of others the name tells.

    Examples:
        Rank 1 computes for 9 ms, and rank 0 waits for it:

        >>> def span(rank: int, name: str, start: int, end: int) -> Span:
        ...     return Span("aa", f"{rank}{name}", None, name, start * 10**6, end * 10**6, "trainer", rank, "step", 1)
        >>> spans = {0: [span(0, "forward", 0, 2), span(0, "all_reduce", 2, 10)],
        ...          1: [span(1, "forward", 0, 9), span(1, "all_reduce", 9, 10)]}
        >>> [(one.phase, one.rank, (one.end_ns - one.start_ns) // 10**6) for one in critical_path(spans)]
        [('forward', 1, 9), ('all_reduce', 0, 1)]
    """
    spans = {rank: found for rank, found in of_rank.items() if found}
    if not spans:
        return []
    # The longest step; of equally long ones that of the lowest rank.
    begin, now, rank = min(_slowest(spans), key=lambda one: (one[0] - one[1], one[2]))
    pieces, waits = {one: _pieces(found, kinds) for one, found in spans.items()}, _Waits(spans, kinds)
    path: list[Segment] = []
    while now > begin:
        # Each turn goes back in time: pieces begin, and others come, before `now`.
        piece = _piece_before(pieces[rank], now, begin)
        # Waiting is on the path since the other one came, and before that the other one is.
        came = None if piece.span is None else waits.of(piece.span, piece.start_ns, now)
        since = max(piece.start_ns if came is None else came.at_ns, begin)
        path.append(_segment(piece, rank, since, now))
        rank, now = (rank, since) if came is None else (came.rank, since)
    return _joined(reversed(path))


def account_of(path: Sequence[Segment]) -> list[Exposed]:
    """Return what each phase has of the path, and the rank that has most of that: all phases add up to the step."""
    seconds: dict[str, dict[int, int]] = {}
    for one in path:
        of_ranks = seconds.setdefault(one.phase, {})
        of_ranks[one.rank] = of_ranks.get(one.rank, 0) + one.end_ns - one.start_ns
    return [
        Exposed(phase, sum(of_ranks.values()) / 1e9, max(of_ranks, key=lambda rank: (of_ranks[rank], -rank)))
        for phase, of_ranks in seconds.items()
    ]


def _slowest(spans: Mapping[int, Sequence[Span]]) -> Iterator[tuple[int, int, int]]:
    """Yield when the step of each rank began and ended."""
    for rank, found in spans.items():
        whole = [span for span in found if span.name == STEP] or found
        yield min(span.start_ns for span in whole), max(span.end_ns for span in whole), rank


def _segment(piece: _Piece, rank: int, start_ns: int, end_ns: int) -> Segment:
    if piece.span is None:
        return Segment(UNTIMED if piece.is_of_step else NOT_BEGUN, rank, start_ns, end_ns)
    return Segment(piece.span.name, rank, start_ns, end_ns, piece.span.span_id)


def _joined(path: Iterator[Segment]) -> list[Segment]:
    joined: list[Segment] = []
    for one in path:
        if joined and joined[-1][:2] == one[:2] and joined[-1].span_id == one.span_id:
            joined[-1] = joined[-1]._replace(end_ns=one.end_ns)
        else:
            joined.append(one)
    return joined


def _pieces(spans: Sequence[Span], kinds: Mapping[str, TimerKind]) -> list[_Piece]:
    """Return the time of a rank in pieces without gaps, ascending."""
    timed = [span for span in spans if span.name != STEP and span.end_ns > span.start_ns]
    # Of spans that begin at once the longest comes first: it is around the others.
    begun = sorted(timed, key=lambda span: (span.start_ns, -span.end_ns))
    steps = of_steps(spans)
    times = sorted({time for span in spans for time in (span.start_ns, span.end_ns)})
    running: list[Span] = []
    pieces, place = [], 0
    for start, end in pairwise(times):
        running = [span for span in running if span.end_ns > start]
        while place < len(begun) and begun[place].start_ns <= start:
            running.append(begun[place])
            place += 1
        pieces.append(_Piece(start, end, _counting(running, steps, kinds)))
    return pieces


def _counting(running: Sequence[Span], steps: frozenset[str], kinds: Mapping[str, TimerKind]) -> Span | None:
    """Return which of the spans that run counts: who is around another one does not, and waiting not beside work.

    Of work that runs at once it is the step's own: what a thread does beside it takes nothing of the step's time.
    """
    inner = [
        span
        for place, span in enumerate(running, 1)
        if not any(contains(span, later, steps) for later in running[place:])
    ]

    def counts(span: Span) -> tuple[bool, bool, int, int]:
        # Work before waiting, the step's own before another thread's, then the innermost.
        return not _waits(span.name, kinds), span.span_id in steps, span.start_ns, -span.end_ns

    return max(inner, key=counts, default=None)


def _piece_before(pieces: Sequence[_Piece], now: int, begin: int) -> _Piece:
    """Return the piece that ends at `now`, or that it is in; before the first one nothing is timed."""
    place = bisect_left(pieces, now, key=lambda piece: piece.end_ns)
    if place < len(pieces) and pieces[place].start_ns < now:
        return pieces[place]
    # A rank that is waited for may have come to its step later than that: what it did before is not known.
    last = pieces[-1].end_ns if pieces and pieces[-1].end_ns < now else begin
    return _Piece(last, now, None, is_of_step=False)


def _waits(name: str, kinds: Mapping[str, TimerKind]) -> bool:
    return not accuses(name, kinds) and not (is_routed(name) and kinds.get(name) is None)


class _Waits:
    """What ended the waiting of whom."""

    def __init__(self, of_rank: Mapping[int, Sequence[Span]], kinds: Mapping[str, TimerKind]) -> None:
        self._collectives: dict[str, list[Span]] = defaultdict(list)
        self._hands_on: dict[str, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
        for rank, spans in of_rank.items():
            # In order, for `_partner` pairs the n-th message of one end with the n-th of the other.
            for span in sorted(spans, key=lambda one: one.start_ns):
                if _waits(span.name, kinds) and _is_one_way(span.name):
                    self._hands_on[_direction(span.name)][rank].append(span)
                elif _waits(span.name, kinds):
                    self._collectives[_meeting(span.name)].append(span)
        for found in self._collectives.values():
            found.sort(key=lambda one: one.end_ns)
        self._kinds = kinds
        self._partners: dict[tuple[str, int], int | None] = {}
        self._begins: dict[tuple[str, int], _Messages] = {}

    def of(self, span: Span, since: int, now: int) -> _Came | None:
        """Return who came from `since` to `now`, while a span waited; None where it did not wait, or nobody did."""
        if not _waits(span.name, self._kinds):
            return None
        came = self._partner(span) if _is_one_way(span.name) else self._last_one(span)
        is_waited_for = came is not None and came.rank != span.rank and span.start_ns < came.at_ns < now
        return came if came is not None and is_waited_for and came.at_ns >= since else None

    def _last_one(self, span: Span) -> _Came:
        """Return who entered a collective last, of those that left it together."""
        found = self._collectives[_meeting(span.name)]
        # Several all-reduces of a step have one name: those that left together were one.
        slack = max(_TOGETHER_NS, int(_TOGETHER * (span.end_ns - span.start_ns)))
        first = bisect_left(found, span.end_ns - slack, key=lambda one: one.end_ns)
        last = bisect_left(found, span.end_ns + slack + 1, key=lambda one: one.end_ns)
        latest = max(found[first:last], key=lambda one: (one.start_ns, -one.rank))
        return _Came(latest.rank, latest.start_ns)

    def _partner(self, span: Span) -> _Came | None:
        """Return who sent what was received, or received what was sent."""
        name = _direction(span.name)
        own = self._hands_on[name][span.rank]
        key = name, span.rank
        if key not in self._partners:
            self._partners[key] = self._matched(_counterpart(name), span.rank, own)
        partner = self._partners[key]
        if partner is None:
            return None
        # Both ends have their messages in one order: the n-th that was sent is the n-th that was received.
        return _Came(partner, self._hands_on[_counterpart(name)][partner][own.index(span)].start_ns)

    def _matched(self, others: str, rank: int, own: Sequence[Span]) -> int | None:
        """Return who is at the other end: with as many messages, none of which comes before it is sent."""
        ranks, begins = self._messages(others, len(own))
        # [ranks, messages]: how long after the other's message began this rank's ended. Never before it, and of several
        # ranks that fit the one with the least delay.
        late = np.array([one.end_ns for one in own]) - begins
        fits = np.flatnonzero((late >= 0).all(axis=1) & (ranks != rank))
        return int(ranks[fits[late[fits].sum(axis=1).argmin()]]) if len(fits) else None

    def _messages(self, name: str, count: int) -> _Messages:
        """Return the ranks that have so many messages, and when each began [ranks, messages]."""
        if (name, count) not in self._begins:
            found = {rank: of_it for rank, of_it in self._hands_on.get(name, {}).items() if len(of_it) == count}
            begins = np.array([[one.start_ns for one in of_it] for of_it in found.values()], dtype=np.int64)
            self._begins[name, count] = np.array(list(found), dtype=np.int64), begins.reshape(len(found), count)
        return self._begins[name, count]


def _is_one_way(name: str) -> bool:
    """Whether a timer only sends, or only receives: what does both at once meets the others in time."""
    return is_between_stages(name) and bool(_SENDS.search(name)) != bool(_RECEIVES.search(name))


def _meeting(name: str) -> str:
    """Return what those who do it at once have in common: a collective its name, sending and receiving at once any."""
    return "" if is_between_stages(name) else name


def _direction(name: str) -> str:
    """Return a name as both ends have it, but for who sends."""
    return _SENDS.sub("send", _RECEIVES.sub("recv", name))


def _counterpart(direction: str) -> str:
    """Return what the other end does meanwhile.

    Examples:
        >>> _counterpart("forward-recv"), _counterpart(_direction("Backward_Send"))
        ('forward-send', 'Backward_recv')
    """
    return direction.replace("send", "recv") if "send" in direction else direction.replace("recv", "send")
