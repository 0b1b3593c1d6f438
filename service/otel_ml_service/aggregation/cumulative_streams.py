"""Streams of other SDKs that accumulate: what a point of one adds to the points before it (docs/protocol.md §4.11)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_exporters.json_text import plain_json
from otel_ml_service.aggregation.fold import COUNT, M2, MAX, MIN, STATS, SUM, WXSUM
from otel_ml_service.aggregation.observation import Attributes, Buckets, ThirdPartyPoint
from otel_ml_service.aggregation.quantiles import difference, narrowed
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
    buckets: Buckets | None
    received_at: float


class Fresh(NamedTuple):
    """What a point adds to what was known."""

    stats: npt.NDArray[np.float64]
    buckets: Buckets | None


class CumulativeStreams:
    """Remembers the newest point of each stream; `changed` are those that a commit has to write."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self.known: dict[CumulativeKey, CumulativeStream] = {}
        self.changed: dict[CumulativeKey, None] = {}
        self._scopes: dict[int, dict[str, None]] = {}
        self._checked_at = 0.0

    def increase(self, writer: int, point: ThirdPartyPoint) -> Fresh | None:
        """Return what a cumulative point adds; None where that is nothing, or not of this run."""
        key = key_of(writer, point)
        before = self._before(key)
        if before is not None and point.time_ns <= before.time_ns:
            return None
        if before is not None and _says_the_same(point, before):
            self._refresh(key, before)
            return None
        self._keep(key, point)
        whole = whole_of(point)
        if before is None:
            return whole if self._within_run(point) else None
        restarted = point.start_ns > before.start_ns or _lower(point, before)
        return whole if restarted else _difference(point, whole, before)

    def level(self, writer: int, point: ThirdPartyPoint) -> Fresh | None:
        """Return the level of a whole process: what each of its meters said last of this up-down counter, added up.

        None where that is no news.
        """
        key = key_of(writer, point)
        before = self._before(key)
        if before is not None and _says_the_same(point, before):
            self._refresh(key, before)
            return None
        if before is None or point.time_ns > before.time_ns:
            self._keep(key, point)
        self._note_scope(key)
        oldest_ns = 0 if key.step is not None else point.time_ns - int(self._run.settings.foreign_window_s * 1e9)
        siblings = (self.known.get(key._replace(scope=scope)) for scope in self._scopes[writer] if scope != key.scope)
        stats, _ = whole_of(point)
        others = sorted(found.stats[SUM] for found in siblings if found is not None and found.time_ns > oldest_ns)
        total = stats.copy()
        total[0, SUM : MAX + 1] = sum(others, stats[0, SUM])
        return Fresh(total, None)

    def restore(self, key: CumulativeKey, stream: CumulativeStream) -> None:
        """Know a stream that an earlier engine committed."""
        self.known[key] = stream
        self._note_scope(key)

    def _before(self, key: CumulativeKey) -> CumulativeStream | None:
        """Return the newest point of a stream; one of which the scope was not known is the first's that is heard."""
        unscoped = key._replace(scope=None)
        if unscoped in self.known:
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

    def _keep(self, key: CumulativeKey, point: ThirdPartyPoint) -> None:
        if key not in self.known and len(self.known) >= MAX_STREAMS:
            self._forget_oldest()
        stats, buckets = whole_of(point)
        kept = tuple(stats[0, : WXSUM + 1].tolist())  # points of others tell no more
        self.known[key] = CumulativeStream(point.start_ns, point.time_ns, kept, buckets, self._run.now)
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

    def _within_run(self, point: ThirdPartyPoint) -> bool:
        if point.step is not None:
            return True  # whoever names a step counts for this run
        # A start equal to the time is a receiver's "I saw it first now": the value is of an unknown past.
        began = 0 < point.start_ns < point.time_ns
        return began and self._run.origin_ns is not None and point.start_ns >= self._run.origin_ns


def key_of(writer: int, point: ThirdPartyPoint) -> CumulativeKey:
    """Return the stream of a point."""
    return CumulativeKey(writer, point.scope, point.metric, point.attributes, point.axis, point.step)


def entry_of(key: Sequence[object]) -> str:
    """Return the name of a stream's entry in the engine's state."""
    return f"stream/{blake2b(plain_json(key), digest_size=12).hexdigest()}"


def whole_of(point: ThirdPartyPoint) -> Fresh:
    """Return what a point says of the whole life of its stream."""
    return Fresh(point.partials.stats, point.partials.buckets[0] if point.partials.buckets is not None else None)


def _says_the_same(point: ThirdPartyPoint, before: CumulativeStream) -> bool:
    """Whether a point at a step is the one before it, sent once more: an SDK that accumulates sends all it ever had."""
    if point.step is None or point.start_ns != before.start_ns:
        return False
    known = (before.stats[COUNT], before.stats[SUM])
    return np.array_equal(point.partials.stats[0, [COUNT, SUM]], known, equal_nan=True)


def _lower(point: ThirdPartyPoint, before: CumulativeStream) -> bool:
    column = SUM if point.kind == "sum" else COUNT
    return bool(point.partials.stats[0, column] < before.stats[column])


def _difference(point: ThirdPartyPoint, whole: Fresh, before: CumulativeStream) -> Fresh:
    """Subtract what was known."""
    stats = np.full((1, STATS), np.nan)
    stats[0, SUM] = whole.stats[0, SUM] - before.stats[SUM]
    if point.kind == "sum":
        stats[0, COUNT], stats[0, MIN], stats[0, MAX] = 1.0, stats[0, SUM], stats[0, SUM]
        return Fresh(stats, None)
    stats[0, COUNT] = whole.stats[0, COUNT] - before.stats[COUNT]
    stats[0, MIN], stats[0, MAX] = _extremes(point, before)
    if stats[0, COUNT] == 1:
        stats[0, MIN] = stats[0, MAX] = stats[0, SUM]
        stats[0, M2] = 0.0
    if whole.buckets is None or before.buckets is None:
        return Fresh(stats, whole.buckets)
    # What came since lies between the extremes of all, too.
    low, high = whole.stats[0, MIN : MAX + 1].tolist()
    return Fresh(stats, narrowed(difference(whole.buckets, before.buckets), low, high))


def _extremes(point: ThirdPartyPoint, before: CumulativeStream) -> tuple[float, float]:
    """Return the least and the largest value since the point before, as far as they are known: NaN is unknown.

    A stream with a step lives within that step. One without tells the extremes of its whole life: those of an interval
    are known where they are new ones; that a bucket grew would only say between which bounds they lie.
    """
    low, high = point.partials.stats[0, MIN : MAX + 1].tolist()
    if point.step is not None:
        return low, high
    return low if low < before.stats[MIN] else np.nan, high if high > before.stats[MAX] else np.nan
