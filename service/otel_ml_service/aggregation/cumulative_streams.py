"""Streams of other SDKs that accumulate: what a point of one adds to the points before it (docs/protocol.md §4.11).

Points of a meter come together, and are compared with those before them together: numpy's price is the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.aggregation.fold import COUNT, M2, MAX, MIN, STATS, SUM
from otel_ml_service.aggregation.observation import SeriesKey, ThirdPartyPoints
from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.points import Floats, Ints, Points
from otel_ml_service.aggregation.quantiles import came_since
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.stream_table import KEPT, AnyBuckets, Latest, Meter, StreamTable

__all__ = ["CumulativeStreams", "Fresh"]

EXPIRY_CHECK_S = 60.0
"""Seconds from one search for idle streams to the next: it looks at all of them."""

MAX_STREAMS = 200_000
"""Cumulative streams; those of single steps go first."""


MAX_METERS = 64
"""Meters of a process whose levels are added up: each costs a look at every level; of further ones the last counts."""

Flags = npt.NDArray[np.bool_]


class Fresh(NamedTuple):
    """What points add to what was known: which of them do, and how much."""

    rows: list[int]
    partials: Points


class _Heard(NamedTuple):
    """When points of a process arrived last, and since when without a pause: seconds since the epoch."""

    since: float
    last: float


class CumulativeStreams:
    """Remembers the newest point of each stream."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self.tables: dict[Meter, StreamTable] = {}
        self.count = 0
        self._changed: dict[Meter, StreamTable] = {}
        self._gone: list[StreamTable] = []
        self._scopes: dict[int, dict[str, None]] = {}
        # Not in the state: after a restart nobody was heard, and nothing is forgotten before that.
        self._heard: dict[int, _Heard] = {}
        self._checked_at = 0.0
        self._has_unscoped = False

    def increases(self, writer: int, sent: ThirdPartyPoints, shape: Shape, rows: list[int]) -> Fresh:
        """Return what cumulative points add; without those that add nothing, or nothing of this run.

        Args:
            writer: the engine's number of who sent them.
            sent: the points.
            shape: the series of them.
            rows: those that count, ascending.
        """
        table = self._table(writer, sent)
        places = self._places(table, shape, rows)
        # Place -1 is a stream that is not known: what `before` has there means nothing, and `is_new` goes before it.
        points, before = _latest(sent, rows, self._run.now), table.at(places)
        is_new = places < 0
        is_newer = is_new | (points.times > before.times)
        begins = _begin_after(points, before)
        again = is_newer & ~is_new & _say_the_same(sent, points, before, begins)
        self._refresh(table, places[again])
        taken = np.flatnonzero(is_newer & ~again)
        self._keep(table, sent, shape, rows, taken, places, points)
        column = SUM if sent.kind == "sum" else COUNT
        # Less than before is a new life, whatever its times say.
        whole = begins | (points.stats[:, column] < before.stats[:, column]) | is_new
        # What a stream had before the run is kept, to be subtracted, and adds nothing itself.
        counts = ~is_new | self._within_run(sent, points)
        added = taken[counts[taken]]
        if sent.kind == "sum":
            stats = _sums_since(points.stats, before.stats)
        else:
            stats = _histograms_since(sent, points.stats, before.stats)
        # Nothing is subtracted from what began anew.
        stats[whole] = sent.partials.stats[rows][whole]
        buckets = _buckets_since(points, before, whole, added) if sent.partials.buckets is not None else ()
        return _fresh(sent, rows, added, stats, buckets)

    def levels(self, writer: int, sent: ThirdPartyPoints, shape: Shape, rows: list[int]) -> Fresh:
        """Return the levels of a whole process: what each of its meters said last of up-down counters, added up.

        Without those that are no news.

        Args:
            writer: the engine's number of who sent them.
            sent: the points.
            shape: the series of them.
            rows: those that count, ascending.
        """
        table = self._table(writer, sent)
        places = self._places(table, shape, rows)
        points, before = _latest(sent, rows, self._run.now), table.at(places)
        is_new = places < 0
        again = ~is_new & _say_the_same(sent, points, before, _begin_after(points, before))
        self._refresh(table, places[again])
        newer = np.flatnonzero(~again & (is_new | (points.times > before.times)))
        self._keep(table, sent, shape, rows, newer, places, points)
        self._note_scope(table.meter)
        # An older point counts, too: its step may have none newer, and the fold takes the newest.
        taken = np.flatnonzero(~again)
        stats = sent.partials.stats[rows]
        stats[:, SUM : MAX + 1] = self._totals(table.meter, shape, rows, points)[:, None]
        return _fresh(sent, rows, taken, stats, ())

    def _totals(self, meter: Meter, shape: Shape, rows: list[int], points: Latest) -> Floats:
        """Return points with what other meters of the process said last, lowest first."""
        totals: Floats = points.stats[:, SUM].copy()
        window_ns = int(self._run.settings.third_party_window_s * 1e9)
        # Without a step, a meter that said nothing for the width of a window does not count; at a step whatever it said
        # of that step does.
        oldest = points.times - window_ns if meter.step is None else np.zeros_like(points.times)
        others: dict[int, list[float]] = {}
        for scope in self._scopes[meter.writer]:
            table = self.tables.get(meter._replace(scope=scope))
            if table is None or scope == meter.scope:
                continue
            places = table.rows_of(shape)[rows]
            known = table.at(places)
            for row in np.flatnonzero((places >= 0) & (known.times > oldest)).tolist():
                others.setdefault(row, []).append(float(known.stats[row, SUM]))
        for row, values in others.items():
            # Sorted: meters are heard in any order, and sums of doubles depend on it.
            totals[row] = sum(sorted(values), float(totals[row]))
        return totals

    def heard_before(self, writer: int, sent: ThirdPartyPoints, time_ns: int) -> int:
        """Return how many other meters of a process have said where they stand at that time, or later."""
        meter = Meter(writer, sent.scope, sent.axis, sent.step)
        others = (self.tables.get(meter._replace(scope=scope)) for scope in self._scopes[writer] if scope != sent.scope)
        return sum(table is not None and table.newest_ns >= time_ns for table in others)

    def restore(self, meter: Meter, chunk: int, keys: Sequence[SeriesKey], latest: Latest) -> None:
        """Know the streams of an entry that an earlier engine committed."""
        table = self.tables.get(meter)
        if table is None:
            table = self.tables[meter] = StreamTable(meter)
        table.restore(chunk, keys, latest)
        self.count += len(keys)
        self._note_scope(meter)
        self._has_unscoped |= meter.scope is None

    def changes(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield the entries of the state that a commit has to write."""
        for table in self._gone:
            yield from table.removal()
        self._gone.clear()
        for table in self._changed.values():
            yield from table.changes()
        self._changed.clear()

    def _table(self, writer: int, sent: ThirdPartyPoints) -> StreamTable:
        self._hear(writer)
        meter = Meter(writer, sent.scope, sent.axis, sent.step)
        table = self.tables.get(meter)
        if table is None:
            table = self.tables[meter] = StreamTable(meter)
        return table

    def _places(self, table: StreamTable, shape: Shape, rows: list[int]) -> Ints:
        """Return the rows of streams; one of which the scope was not known is the first's that is heard."""
        if self._has_unscoped:
            self._adopt(table, [shape.series[row] for row in rows])
        places = table.rows_of(shape)
        return places if len(rows) == len(places) else places[rows]

    def _adopt(self, table: StreamTable, keys: Sequence[SeriesKey]) -> None:
        unscoped = self.tables.get(table.meter._replace(scope=None))
        if unscoped is None:
            return
        self._changed[unscoped.meter] = unscoped
        for key in keys:
            latest = unscoped.take(key[:2])
            if latest is not None:
                place = table.row_of(key[:2])
                table.put(table.add([key]) if place is None else np.array([place]), latest)
                self._changed[table.meter] = table
                # Where the stream is known under its scope, too, two rows have become one.
                self.count -= place is not None

    def _note_scope(self, meter: Meter) -> None:
        scopes = self._scopes.setdefault(meter.writer, {})
        if meter.scope is not None and len(scopes) < MAX_METERS:
            scopes[meter.scope] = None

    def _hear(self, writer: int) -> None:
        now = self._run.now
        before = self._heard.get(writer, _Heard(now, now))
        # What is sent again and again is noted each quarter of that time (`_refresh`): with a pause of less than half
        # of it, no such stream is taken for idle.
        is_back = now - before.last > self._run.settings.identity_memory_s / 2
        self._heard[writer] = _Heard(now if is_back else before.since, now)

    def forget_idle(self) -> None:
        """Let go of streams of single steps that were idle for as long as identities are remembered.

        That is time in which their process was heard. An SDK that accumulates sends all it ever had when it is back
        after an outage, in several requests perhaps: of a stream that is not known, all of that would count once more.
        """
        now = self._run.now
        if now - self._checked_at < EXPIRY_CHECK_S:
            return
        self._checked_at = now
        for table in [table for meter, table in self.tables.items() if meter.step is not None]:
            heard = self._heard.get(table.meter.writer)
            if heard is None:
                continue
            if heard.last - max(table.received_at, heard.since) > self._run.settings.identity_memory_s:
                self._forget(table)

    def _keep(
        self,
        table: StreamTable,
        sent: ThirdPartyPoints,
        shape: Shape,
        rows: list[int],
        taken: Ints,
        places: Ints,
        points: Latest,
    ) -> None:
        """Know newer points, of new streams too."""
        if not len(taken):
            return
        new = taken[places[taken] < 0].tolist()
        if new:
            # Where no other table is left to forget, this one goes beyond the bound.
            while self.count + len(new) > MAX_STREAMS and self._forget_oldest(table):
                pass
            self.count += len(new)
            # The places may be the table's own array of this shape.
            places = places.copy()
            places[new] = table.add([shape.series[rows[row]] for row in new])
        table.put(places[taken], _some(points, taken))
        self._changed[table.meter] = table

    def _refresh(self, table: StreamTable, places: Ints) -> None:
        """Keep those that are sent again and again; what is committed of them need not be newer than is remembered."""
        if not len(places):
            return
        known = table.at(places)
        # Each refresh is written with the next commit, so a stream that says nothing new has few.
        late = self._run.now - known.received > self._run.settings.identity_memory_s / 4
        if late.any():
            now = np.full(late.sum(), self._run.now)
            table.put(places[late], _some(known, np.flatnonzero(late))._replace(received=now))
            self._changed[table.meter] = table

    def _forget_oldest(self, but: StreamTable) -> bool:
        """Let go of the older half, of those of single steps if there are any; their next point counts from zero."""
        others = [table for table in self.tables.values() if table is not but and len(table)]
        candidates = [table for table in others if table.meter.step is not None] or others
        candidates.sort(key=lambda table: table.received_at)
        # Half at once: one by one, each new stream beyond the bound would sort all of them.
        enough = sum(map(len, candidates)) // 2
        for table in candidates:
            self._forget(table)
            enough -= len(table)
            if enough <= 0:
                break
        return bool(candidates)

    def _forget(self, table: StreamTable) -> None:
        del self.tables[table.meter]
        self._changed.pop(table.meter, None)
        self._gone.append(table)
        self.count -= len(table)

    def _within_run(self, sent: ThirdPartyPoints, points: Latest) -> Flags | bool:
        if sent.step is not None:
            return True  # whoever names a step counts for this run
        origin_ns = self._run.origin_ns
        return _tell_their_start(points) & (points.starts >= max(0, origin_ns)) if origin_ns is not None else False


def _latest(sent: ThirdPartyPoints, rows: list[int], now: float) -> Latest:
    """Return points as they were sent: what each stream has in all."""
    starts, partials = np.array(sent.starts, np.uint64), sent.partials
    times, stats, buckets = partials.times[:, 1], partials.stats[:, :KEPT], partials.buckets
    if len(rows) < len(starts):
        starts, times, stats = starts[rows], times[rows], stats[rows]
        buckets = None if buckets is None else tuple(buckets[row] for row in rows)
    return Latest(starts, times, stats, np.full(len(rows), now), (None,) * len(rows) if buckets is None else buckets)


def _some(points: Latest, rows: Ints) -> Latest:
    if len(rows) == len(points.times):
        return points
    starts, times, stats, received, buckets = points
    return Latest(starts[rows], times[rows], stats[rows], received[rows], [buckets[row] for row in rows.tolist()])


def _fresh(
    sent: ThirdPartyPoints, rows: list[int], added: Ints, stats: Floats, buckets: Sequence[AnyBuckets | None]
) -> Fresh:
    """Return what some of the points add: `stats` are those of all, and `buckets` of those that add something."""
    if len(added) < len(rows):
        rows, stats = [rows[row] for row in added.tolist()], stats[added]
    partials = sent.partials if len(rows) == len(sent.partials.series) else sent.partials.some(rows)
    found = tuple(buckets) if any(bucket is not None for bucket in buckets) else None
    return Fresh(rows, partials.unpack()._replace(stats=stats, buckets=found))


def _say_the_same(sent: ThirdPartyPoints, points: Latest, before: Latest, begins: Flags) -> Flags:
    """Whether points at a step are those before them, sent once more: an SDK that accumulates sends all it ever had."""
    if sent.step is None:
        return np.zeros(len(begins), bool)
    new, old = points.stats[:, COUNT : SUM + 1], before.stats[:, COUNT : SUM + 1]
    same: Flags = ((new == old) | (np.isnan(new) & np.isnan(old))).all(axis=1) & ~begins
    return same


def _begin_after(points: Latest, before: Latest) -> Flags:
    """Whether streams begin anew after the newest point of those before them: their program was started again.

    One that begins earlier than that is what a second reader of the same program sends (ADR 0072).
    """
    # Starts are unsigned as in OTLP, times signed as numpy's: below 2⁶³ the same bits are the same number.
    starts = points.starts
    return (starts > before.starts) & (starts >= before.times.view(np.uint64)) & _tell_their_start(points)


def _tell_their_start(points: Latest) -> Flags:
    # A start equal to the time is a receiver's "I saw it first now": the value is of an unknown past.
    return (points.starts > 0) & (points.starts < points.times.view(np.uint64))


def _sums_since(now: Floats, before: Floats) -> Floats:
    """Subtract what was known of sums."""
    stats = np.full((len(now), STATS), np.nan)
    # One record of what the sum grew by, which is its least and its largest value, too.
    stats[:, COUNT] = 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        stats[:, SUM : MAX + 1] = (now[:, SUM] - before[:, SUM])[:, None]
    return stats


def _histograms_since(sent: ThirdPartyPoints, now: Floats, before: Floats) -> Floats:
    """Subtract what was known of histograms.

    A stream with a step lives within that step. One without tells the extremes of its whole life: those of an interval
    are known where they are new ones; that a bucket grew would only say between which bounds they lie.
    """
    stats = np.full((len(now), STATS), np.nan)
    with np.errstate(invalid="ignore", over="ignore"):
        stats[:, COUNT : SUM + 1] = now[:, COUNT : SUM + 1] - before[:, COUNT : SUM + 1]
    low, high = now[:, MIN], now[:, MAX]
    if sent.step is not None:
        stats[:, MIN], stats[:, MAX] = low, high
    else:
        stats[:, MIN] = np.where(low < before[:, MIN], low, np.nan)
        stats[:, MAX] = np.where(high > before[:, MAX], high, np.nan)
    # One record since then: its value is what the sum grew by.
    single = stats[:, COUNT] == 1
    stats[single, MIN] = stats[single, MAX] = stats[single, SUM]
    stats[single, M2] = 0.0
    return stats


def _buckets_since(points: Latest, before: Latest, whole: Flags, added: Ints) -> list[AnyBuckets | None]:
    """Return the buckets of what came since; that lies between the extremes of all, too."""
    found: list[AnyBuckets | None] = []
    extremes = points.stats[added, MIN : MAX + 1].tolist()
    for row, is_whole, (low, high) in zip(added.tolist(), whole[added].tolist(), extremes, strict=True):
        now, then = points.buckets[row], before.buckets[row]
        found.append(now if is_whole or now is None or then is None else came_since(now, then, low, high))
    return found
