"""Streams of other SDKs that accumulate: what a point of one adds to the points before it (docs/protocol.md §4.11)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from otel_ml_exporters.json_text import plain_json
from otel_ml_service.aggregation.fold import COUNT, M2, MAX, MIN, STATS, SUM, WXSUM
from otel_ml_service.aggregation.observation import Attributes, Buckets, Partials, ThirdPartyPoints
from otel_ml_service.aggregation.points import ExplicitBuckets
from otel_ml_service.aggregation.quantiles import came_since
from otel_ml_service.aggregation.run_state import RunState

__all__ = ["CumulativeKey", "CumulativeStream", "CumulativeStreams", "Fresh", "entry_of"]

EXPIRY_CHECK_S = 60.0
"""Seconds from one search for idle streams to the next: it looks at all of them."""

MAX_STREAMS = 200_000
"""Cumulative streams; those of single steps go first."""


MAX_METERS = 64
"""Meters of a process whose levels are added up: each costs a look at every level; of further ones the last counts."""


class CumulativeKey(NamedTuple):
    """What tells a stream from others.

    Attributes:
        writer: the engine's number of it.
        scope: None where the first version of the state did not tell it.
    """

    writer: int
    scope: str | None
    metric: str
    attributes: Attributes
    axis: str | None
    step: int | None


class CumulativeStream(NamedTuple):
    """The newest cumulative point of a stream, and when it was received."""

    start_ns: int
    time_ns: int
    stats: tuple[float, ...]
    buckets: Buckets | ExplicitBuckets | None
    received_at: float


class _Point(NamedTuple):
    """A point as it was sent: what a stream has in all."""

    start_ns: int
    time_ns: int
    stats: Sequence[float]
    buckets: Buckets | ExplicitBuckets | None


class _Added(NamedTuple):
    """What a point adds to what was known."""

    stats: Sequence[float]
    buckets: Buckets | ExplicitBuckets | None


class Fresh(NamedTuple):
    """What points add to what was known: which of them do, and how much."""

    rows: list[int]
    partials: Partials


class CumulativeStreams:
    """Remembers the newest point of each stream; `changed` are those that a commit has to write."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self.known: dict[CumulativeKey, CumulativeStream] = {}
        self.changed: dict[CumulativeKey, None] = {}
        self._scopes: dict[int, dict[str, None]] = {}
        self._checked_at = 0.0
        self._has_unscoped = False

    def increases(self, writer: int, sent: ThirdPartyPoints, rows: list[int]) -> Fresh:
        """Return what cumulative points add; without those that add nothing, or nothing of this run."""
        return self._fresh(writer, sent, rows, self._increase)

    def levels(self, writer: int, sent: ThirdPartyPoints, rows: list[int]) -> Fresh:
        """Return the levels of a whole process: what each of its meters said last of up-down counters, added up.

        Without those that are no news.
        """
        return self._fresh(writer, sent, rows, self._level)

    def _fresh(
        self,
        writer: int,
        sent: ThirdPartyPoints,
        rows: list[int],
        added_by: Callable[[CumulativeKey, _Point, ThirdPartyPoints], _Added | None],
    ) -> Fresh:
        found: list[tuple[int, _Added]] = []
        for row, (key, point) in _points(writer, sent, rows):
            added = added_by(key, point, sent)
            if added is not None:
                found.append((row, added))
        rows = [row for row, _ in found]
        stats = np.array([added.stats for _, added in found], dtype=np.float64).reshape(len(found), STATS)
        buckets = tuple(added.buckets for _, added in found)
        return Fresh(rows, sent.partials.some(rows)._replace(stats=stats, buckets=buckets if any(buckets) else None))

    def _increase(self, key: CumulativeKey, point: _Point, sent: ThirdPartyPoints) -> _Added | None:
        before = self._before(key)
        if before is not None and point.time_ns <= before.time_ns:
            return None
        if before is not None and _says_the_same(key, point, before):
            self._refresh(key, before)
            return None
        self._keep(key, point)
        if before is None:
            return _whole(point) if self._within_run(key, point) else None
        is_sum = sent.kind == "sum"
        if _begins_after(point, before) or _is_lower(point, before, SUM if is_sum else COUNT):
            return _whole(point)
        return _sum_since(point, before) if is_sum else _histogram_since(key, point, before)

    def _level(self, key: CumulativeKey, point: _Point, _sent: ThirdPartyPoints) -> _Added | None:
        before = self._before(key)
        if before is not None and _says_the_same(key, point, before):
            self._refresh(key, before)
            return None
        if before is None or point.time_ns > before.time_ns:
            self._keep(key, point)
        self._note_scope(key)
        oldest_ns = 0 if key.step is not None else point.time_ns - int(self._run.settings.third_party_window_s * 1e9)
        siblings = (
            self.known.get(key._replace(scope=scope)) for scope in self._scopes[key.writer] if scope != key.scope
        )
        others = sorted(found.stats[SUM] for found in siblings if found is not None and found.time_ns > oldest_ns)
        total = list(point.stats)
        total[SUM : MAX + 1] = [sum(others, point.stats[SUM])] * (MAX + 1 - SUM)
        return _Added(total, None)

    def restore(self, key: CumulativeKey, stream: CumulativeStream) -> None:
        """Know a stream that an earlier engine committed."""
        self.known[key] = stream
        self._note_scope(key)
        self._has_unscoped |= key.scope is None

    def _before(self, key: CumulativeKey) -> CumulativeStream | None:
        """Return the newest point of a stream; one of which the scope was not known is the first's that is heard."""
        if self._has_unscoped and (unscoped := key._replace(scope=None)) in self.known:
            self.known[key] = self.known[unscoped]
            self.changed[key] = None
            self._forget(unscoped)
        return self.known.get(key)

    def _note_scope(self, key: CumulativeKey) -> None:
        scopes = self._scopes.setdefault(key.writer, {})
        if key.scope is not None and len(scopes) < MAX_METERS:
            scopes[key.scope] = None

    def forget_idle(self) -> None:
        """Let go of streams of single steps that were idle for as long as identities are remembered."""
        now = self._run.now
        if now - self._checked_at < EXPIRY_CHECK_S:
            return
        self._checked_at = now
        limit = now - self._run.settings.identity_memory_s
        idle = [key for key, stream in self.known.items() if key.step is not None and stream.received_at < limit]
        for key in idle:
            self._forget(key)

    def _keep(self, key: CumulativeKey, point: _Point) -> None:
        if key not in self.known and len(self.known) >= MAX_STREAMS:
            self._forget_oldest()
        kept = tuple(point.stats[: WXSUM + 1])  # points of others tell no more
        self.known[key] = CumulativeStream(point.start_ns, point.time_ns, kept, point.buckets, self._run.now)
        self.changed[key] = None

    def _refresh(self, key: CumulativeKey, stream: CumulativeStream) -> None:
        """Keep one that is sent again and again; what is committed of it need not be newer than is remembered."""
        if self._run.now - stream.received_at > self._run.settings.identity_memory_s / 4:
            self.known[key] = stream._replace(received_at=self._run.now)
            self.changed[key] = None

    def _forget_oldest(self) -> None:
        """Let go of the older half, of those of single steps if there are any; their next point counts from zero."""
        candidates = [key for key in self.known if key.step is not None] or list(self.known)
        candidates.sort(key=lambda key: self.known[key].received_at)
        for key in candidates[: max(1, len(candidates) // 2)]:
            self._forget(key)

    def _forget(self, key: CumulativeKey) -> None:
        del self.known[key]
        self.changed[key] = None

    def _within_run(self, key: CumulativeKey, point: _Point) -> bool:
        if key.step is not None:
            return True  # whoever names a step counts for this run
        return _tells_its_start(point) and self._run.origin_ns is not None and point.start_ns >= self._run.origin_ns


def _points(writer: int, sent: ThirdPartyPoints, rows: list[int]) -> Iterator[tuple[int, tuple[CumulativeKey, _Point]]]:
    """Yield those rows, each with the stream it is of."""
    series, stats, _, buckets = sent.partials
    times, numbers = sent.partials.times[:, 1].tolist(), stats.tolist()
    for row in rows:
        name, attributes, _kind = series[row]
        key = CumulativeKey(writer, sent.scope, name, attributes, sent.axis, sent.step)
        yield row, (key, _Point(sent.starts[row], times[row], numbers[row], None if buckets is None else buckets[row]))


def entry_of(key: Sequence[object]) -> str:
    """Return the name of a stream's entry in the engine's state."""
    return f"stream/{blake2b(plain_json(key), digest_size=12).hexdigest()}"


def _whole(point: _Point) -> _Added:
    """Return what a point says of the whole life of its stream."""
    return _Added(point.stats, point.buckets)


def _says_the_same(key: CumulativeKey, point: _Point, before: CumulativeStream) -> bool:
    """Whether a point at a step is the one before it, sent once more: an SDK that accumulates sends all it ever had."""
    if key.step is None or _begins_after(point, before):
        return False
    return all(_is_same(point.stats[column], before.stats[column]) for column in (COUNT, SUM))


def _is_same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _begins_after(point: _Point, before: CumulativeStream) -> bool:
    """Whether the stream begins anew after the newest point of the one before it: its program was started again.

    One that begins earlier than that is what a second reader of the same program sends (ADR 0072).
    """
    return point.start_ns > before.start_ns and point.start_ns >= before.time_ns and _tells_its_start(point)


def _tells_its_start(point: _Point) -> bool:
    # A start equal to the time is a receiver's "I saw it first now": the value is of an unknown past.
    return 0 < point.start_ns < point.time_ns


def _is_lower(point: _Point, before: CumulativeStream, column: int) -> bool:
    return point.stats[column] < before.stats[column]


def _sum_since(point: _Point, before: CumulativeStream) -> _Added:
    """Subtract what was known of a sum."""
    stats = list(_UNKNOWN)
    stats[COUNT] = 1.0
    stats[SUM] = stats[MIN] = stats[MAX] = point.stats[SUM] - before.stats[SUM]
    return _Added(stats, None)


def _histogram_since(key: CumulativeKey, point: _Point, before: CumulativeStream) -> _Added:
    """Subtract what was known of a histogram."""
    stats = list(_UNKNOWN)
    stats[SUM] = point.stats[SUM] - before.stats[SUM]
    stats[COUNT] = point.stats[COUNT] - before.stats[COUNT]
    stats[MIN], stats[MAX] = _extremes(key, point, before)
    if stats[COUNT] == 1:
        stats[MIN] = stats[MAX] = stats[SUM]
        stats[M2] = 0.0
    if point.buckets is None or before.buckets is None:
        return _Added(stats, point.buckets)
    # What came since lies between the extremes of all, too.
    low, high = point.stats[MIN : MAX + 1]
    return _Added(stats, came_since(point.buckets, before.buckets, low, high))


def _extremes(key: CumulativeKey, point: _Point, before: CumulativeStream) -> tuple[float, float]:
    """Return the least and the largest value since the point before, as far as they are known: NaN is unknown.

    A stream with a step lives within that step. One without tells the extremes of its whole life: those of an interval
    are known where they are new ones; that a bucket grew would only say between which bounds they lie.
    """
    low, high = point.stats[MIN : MAX + 1]
    if key.step is not None:
        return low, high
    return low if low < before.stats[MIN] else math.nan, high if high > before.stats[MAX] else math.nan


_UNKNOWN = (math.nan,) * STATS
