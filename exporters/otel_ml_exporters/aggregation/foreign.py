"""Points of any OpenTelemetry SDK or Collector receiver: deltas out of any temporality (CONTRACT §4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.aggregation.budget import SeriesBudget
from otel_ml_exporters.aggregation.fold import COUNT, M2, MAX, MIN, SUM
from otel_ml_exporters.aggregation.identities import PointIdentities
from otel_ml_exporters.aggregation.lanes import Tally
from otel_ml_exporters.aggregation.observation import (
    Attributes,
    Buckets,
    ForeignPoint,
    ForeignPoints,
    Kind,
    Partials,
    SeriesKey,
)
from otel_ml_exporters.aggregation.piece import Piece
from otel_ml_exporters.aggregation.quantiles import difference
from otel_ml_exporters.aggregation.room import Room
from otel_ml_exporters.aggregation.run_state import RunState
from otel_ml_exporters.aggregation.steps import Steps
from otel_ml_exporters.aggregation.writer_state import WriterState

__all__ = ["Foreign", "Stream", "StreamKey"]

StreamKey = tuple[int, str, Attributes, str | None, int | None]
"""(writer's number, metric, attributes, axis, step)."""

_KINDS: dict[str, Kind] = {"sum": "moments", "gauge": "order", "histogram": "moments", "exponential": "buckets"}
_LEVEL = Reduction(("sum",), within="last")
"""An up-down counter is a level: the newest of each writer, summed over writers."""
_REDUCTIONS = {
    "sum": Reduction(("sum",)),
    "gauge": Reduction(("mean",)),
    "histogram": Reduction(("mean",)),
    "exponential": Reduction(("mean",)),
}

_SPREAD = Reduction(("mean", "p50", "p90", "p99"))
"""What a scraped histogram is asked for."""

EXPIRY_CHECK_S = 60.0
"""Seconds from one search for idle streams to the next: it looks at all of them."""

MAX_STREAMS = 200_000
"""Cumulative streams; those without a step are bounded by `scraped_series`, the others go first."""


class Stream(NamedTuple):
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


class Foreign:
    """Owns the streams of points without running numbers."""

    def __init__(self, run: RunState, steps: Steps, room: Room) -> None:
        self._run = run
        self._room = room
        self._steps = steps
        self.streams: dict[StreamKey, Stream] = {}
        self.changed: dict[StreamKey, None] = {}
        self._budget = SeriesBudget(run.settings)
        self._identities = PointIdentities()
        self._checked_at = 0.0

    def point(self, writer: WriterState, point: ForeignPoint) -> None:
        """Take one point."""
        axis = TIME_AXIS if point.step is None else point.axis or DEFAULT_AXIS
        if not self._room.axis(point.writer.role, axis, 1):
            return
        tally = self._run.lanes.track(point.writer.role, axis).tally
        tally.received += 1
        if not self._is_admitted(point, tally):
            return
        if self._run.origin_ns is None:
            self._run.origin_ns = self._origin(point.start_ns, point.time_ns)
        series = point.partials.series[0]
        if not self._is_new(writer, axis, series, point.step, point.start_ns, point.time_ns):
            tally.duplicate += 1
            return
        fresh = self._fresh(writer, point)
        if fresh is None or (fresh.stats[0, COUNT] == 0):
            tally.ignored += 1
            return
        piece = self._piece(writer, point, fresh)
        if point.step is None:
            width = self._run.settings.foreign_window_s
            self._steps.stepless.to_windows(piece, point.writer.role, point, width)
        else:
            self._steps.points(writer, point, piece, axis, point.step)

    def points(self, writer: WriterState, sent: ForeignPoints) -> None:
        """Take points of one step that nothing has to be subtracted from."""
        run, role, axis = self._run, writer.writer.role, sent.axis or DEFAULT_AXIS
        partials = sent.partials
        count = len(partials.series)
        if not self._room.axis(role, axis, count):
            return
        tally = run.lanes.track(role, axis).tally
        tally.received += count
        rows = self._new_rows(writer, sent, axis, tally)
        if not rows:
            return
        if run.origin_ns is None:
            run.origin_ns = self._origin(sent.starts[0], partials.newest_ns)
        partials = partials if len(rows) == count else partials.some(rows)
        newest = partials.newest_ns
        shape = run.shapes.of(partials.series)
        reduction = sent.reduction or _REDUCTIONS[sent.kind]
        # Points have no running number: their time puts them in order.
        piece = Piece(writer.source, newest, reduction, shape, partials, newest)
        self._steps.points(writer, sent, piece, axis, sent.step)

    def _new_rows(self, writer: WriterState, sent: ForeignPoints, axis: str, tally: Tally) -> list[int]:
        """Return the rows that there is room for, that are new, and that hold a record."""
        partials, run = sent.partials, self._run
        shape = run.shapes.of(partials.series)
        rows = self._room.rows(writer.writer.role, shape)
        rows = list(range(len(partials.series))) if rows is None else rows
        times, counts = partials.times[:, 1].tolist(), partials.stats[:, COUNT].tolist()
        digests = self._identities.of_all(writer.number, axis, shape, sent.step, sent.starts, times)
        is_new = run.recent.add_digests([digests[row] for row in rows], run.now)
        fresh = [row for row, new in zip(rows, is_new, strict=True) if new]
        tally.duplicate += len(rows) - len(fresh)
        filled = [row for row in fresh if counts[row] != 0]
        tally.ignored += len(fresh) - len(filled)
        return filled

    def forget_idle(self) -> None:
        """Let go of streams of single steps that were idle for as long as identities are remembered."""
        now = self._run.now
        if now - self._checked_at < EXPIRY_CHECK_S:
            return
        self._checked_at = now
        limit = now - self._run.settings.identity_memory_s
        idle = [key for key, stream in self.streams.items() if key[4] is not None and stream.received_at < limit]
        for key in idle:
            del self.streams[key]
            self.changed[key] = None

    def _forget_oldest(self) -> None:
        """Let go of the older half of the streams of single steps; a step's next point counts from zero then."""
        single = [key for key in self.streams if key[4] is not None]
        single.sort(key=lambda key: self.streams[key].received_at)
        for key in single[: max(1, len(single) // 2)]:
            del self.streams[key]
            self.changed[key] = None

    def _is_admitted(self, point: ForeignPoint, tally: Tally) -> bool:
        if point.step is not None:
            return self._room.series(point.writer.role, point.metric, point.attributes)
        verdict = self._budget.verdict(point)
        if verdict == "denied":
            tally.ignored += 1
        elif verdict == "overflow":
            tally.overflow += 1
            self._run.output.say(
                "too-many-scraped",
                f"More than {self._run.settings.scraped_series:,} series without a step arrive; the rest is left out "
                "and counted (otel_ml/overflow). "
                "Name what you need in otel-ml.yaml: scraped: {allow: [...], deny: [...]}.",
            )
        return verdict == "taken"

    def _origin(self, start_ns: int, time_ns: int) -> int:
        """Where a run without writers of ours begins: with the stream, unless that is much older than the run."""
        recent = start_ns > 0 and self._run.now - start_ns / 1e9 < self._run.settings.identity_memory_s
        return start_ns if recent else time_ns

    def _is_new(
        self, writer: WriterState, axis: str, series: SeriesKey, step: int | None, start_ns: int, time_ns: int
    ) -> bool:
        identity = self._identities.of(writer.number, axis, series, step, start_ns, time_ns)
        return self._run.recent.add_digest(identity, self._run.now)

    def _piece(self, writer: WriterState, point: ForeignPoint, fresh: Fresh) -> Piece:
        level = point.kind == "sum" and point.temporality == "cumulative" and not point.monotonic
        kind: Kind = "order" if level else _KINDS[point.kind]
        asked, name, stats = point.reduction, point.metric, fresh.stats
        if asked is None and point.step is None and point.kind == "sum" and point.monotonic:
            name, stats = f"{name}/rate", _per_second(stats, self._run.settings.foreign_window_s)
        elif asked is None and point.step is None and fresh.buckets is not None:
            asked = _SPREAD
        shape = self._run.shapes.of((SeriesKey(name, point.attributes, kind),))
        times = np.array([[point.time_ns, point.time_ns]], dtype=np.int64)
        buckets = None if fresh.buckets is None else (fresh.buckets,)
        reduction = asked or (_LEVEL if level else _REDUCTIONS[point.kind])
        partials = Partials(shape.series, stats, times, buckets)
        # Points have no running number: their time puts them in order.
        return Piece(writer.source, point.time_ns, reduction, shape, partials, point.time_ns)

    def _fresh(self, writer: WriterState, point: ForeignPoint) -> Fresh | None:
        buckets = point.partials.buckets[0] if point.partials.buckets is not None else None
        whole = Fresh(point.partials.stats, buckets)
        accumulates = point.kind != "sum" or point.monotonic
        if point.temporality != "cumulative" or point.kind == "gauge" or not accumulates:
            return whole
        key = (writer.number, point.metric, point.attributes, point.axis, point.step)
        before = self.streams.get(key)
        if before is not None and point.time_ns <= before.time_ns:
            return None
        stats = tuple(point.partials.stats[0].tolist())
        if before is None and len(self.streams) >= MAX_STREAMS:
            self._forget_oldest()
        self.streams[key] = Stream(point.start_ns, point.time_ns, stats, buckets, self._run.now)
        self.changed[key] = None
        if before is None:
            return whole if self._within_run(point) else None
        restarted = point.start_ns > before.start_ns or self._lower(point, before)
        return whole if restarted else self._difference(point, whole, before)

    def _within_run(self, point: ForeignPoint) -> bool:
        if point.step is not None:
            return True  # whoever names a step counts for this run
        # A start equal to the time is a receiver's "I saw it first now": the value is of an unknown past.
        began = 0 < point.start_ns < point.time_ns
        return began and self._run.origin_ns is not None and point.start_ns >= self._run.origin_ns

    @staticmethod
    def _lower(point: ForeignPoint, before: Stream) -> bool:
        column = SUM if point.kind == "sum" else COUNT
        return bool(point.partials.stats[0, column] < before.stats[column])

    @staticmethod
    def _difference(point: ForeignPoint, whole: Fresh, before: Stream) -> Fresh:
        """Subtract what was known; the extremes of an interval cannot be told from those of a life."""
        stats = np.full((1, 7), np.nan)
        stats[0, SUM] = whole.stats[0, SUM] - before.stats[SUM]
        if point.kind == "sum":
            stats[0, COUNT], stats[0, MIN], stats[0, MAX] = 1.0, stats[0, SUM], stats[0, SUM]
            return Fresh(stats, None)
        stats[0, COUNT] = whole.stats[0, COUNT] - before.stats[COUNT]
        if stats[0, COUNT] == 1:
            stats[0, MIN] = stats[0, MAX] = stats[0, SUM]
            stats[0, M2] = 0.0
        if whole.buckets is None or before.buckets is None:
            return Fresh(stats, whole.buckets)
        return Fresh(stats, difference(whole.buckets, before.buckets))


def _per_second(stats: npt.NDArray[np.float64], seconds: float) -> npt.NDArray[np.float64]:
    """Return the stats of an increase as its rate over a window."""
    rates: npt.NDArray[np.float64] = stats.copy()
    rates[:, SUM : MAX + 1] /= seconds
    return rates
