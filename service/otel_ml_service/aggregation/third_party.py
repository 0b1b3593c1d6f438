"""Points of any OpenTelemetry SDK or Collector receiver: deltas out of any temporality (docs/protocol.md §4.11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.cumulative_streams import CumulativeStreams, Fresh, whole_of
from otel_ml_service.aggregation.fold import COUNT, MAX, SUM
from otel_ml_service.aggregation.gauge_samples import GaugeSamples
from otel_ml_service.aggregation.observation import (
    ForeignKind,
    Kind,
    Partials,
    SeriesKey,
    ThirdPartyPoint,
    ThirdPartyPoints,
)
from otel_ml_service.aggregation.piece import Piece, Shape
from otel_ml_service.aggregation.point_identities import PointIdentities, SeriesOrigin
from otel_ml_service.aggregation.quota import Quota
from otel_ml_service.aggregation.run_state import RunState
from otel_ml_service.aggregation.series_budget import SeriesBudget
from otel_ml_service.aggregation.step_streams import Tally
from otel_ml_service.aggregation.steps import Steps
from otel_ml_service.aggregation.writer_state import WriterState

__all__ = ["ThirdParty"]

_KINDS: dict[str, Kind] = {"sum": "moments", "gauge": "order", "histogram": "moments", "exponential": "buckets"}
_LEVEL = Reduction(("sum",), within="last")
"""An up-down counter is a level: the newest of each writer, summed over writers."""
_REDUCTIONS = {
    "sum": Reduction(("sum",), unsaid=("across",)),
    "gauge": Reduction(("mean",), unsaid=("across",)),
    "histogram": Reduction(unsaid=("across",)),
    "exponential": Reduction(unsaid=("across",)),
}

_OVERFLOW = ("otel.metric.overflow", "true")
"""On the point of all sets of attributes above an SDK's limit (OpenTelemetry's Metrics SDK, “Cardinality limits”)."""

_SPREAD = Reduction(("mean", "p50", "p90", "p99"))
"""What a scraped histogram is asked for."""


class ThirdParty:
    """Owns the streams of points without running numbers."""

    def __init__(self, run: RunState, steps: Steps, room: Quota) -> None:
        self._run = run
        self._quota = room
        self._steps = steps
        self.streams = CumulativeStreams(run)
        self._budget = SeriesBudget(run.settings)
        self._identities = PointIdentities()
        self._samples = GaugeSamples()

    def point(self, writer: WriterState, point: ThirdPartyPoint) -> None:
        """Take one point."""
        axis = TIME_AXIS if point.step is None else point.axis or DEFAULT_AXIS
        if not self._quota.axis(point.writer.role, axis, 1):
            return
        tally = self._run.step_streams.stream(point.writer.role, axis).tally
        tally.received += 1
        if not self._is_admitted(point, tally):
            return
        if self._run.origin_ns is None:
            self._run.begin_time(self._origin(point.start_ns, point.time_ns))
        series = point.partials.series[0]
        if not self._is_new(writer, axis, series, point):
            tally.duplicate += 1
            return
        fresh = self._fresh(writer, point)
        if fresh is None or fresh.stats[0, COUNT] == 0 or self._is_sent_again(writer, point, axis):
            tally.ignored += 1
            writer.lived(point.time_ns, self._run.now)
            return
        piece = self._piece(writer, point, fresh)
        if point.step is None:
            width = self._run.settings.foreign_window_s
            self._steps.stepless.to_windows(piece, point.writer.role, point, width)
        else:
            self._steps.points(writer, point, piece, axis, point.step)

    def points(self, writer: WriterState, sent: ThirdPartyPoints) -> None:
        """Take points of one step that nothing has to be subtracted from."""
        run, role, axis = self._run, writer.writer.role, sent.axis or DEFAULT_AXIS
        partials = sent.partials
        count = len(partials.series)
        if not self._quota.axis(role, axis, count):
            return
        tally = run.step_streams.stream(role, axis).tally
        tally.received += count
        rows = self._new_rows(writer, sent, axis, tally)
        if not rows:
            return
        if run.origin_ns is None:
            run.begin_time(self._origin(sent.starts[0], partials.newest_ns))
        partials = partials if len(rows) == count else partials.some(rows)
        newest = partials.newest_ns
        shape = run.shapes.of(partials.series)
        reduction = _of_increases(sent.kind, sent.reduction or _REDUCTIONS[sent.kind])
        meter = sent.scope if sent.kind == "gauge" else None
        # Points have no running number: their time puts them in order.
        piece = Piece(writer.source, newest, reduction, shape, partials, newest, meter)
        self._steps.points(writer, sent, piece, axis, sent.step)

    def _new_rows(self, writer: WriterState, sent: ThirdPartyPoints, axis: str, tally: Tally) -> list[int]:
        """Return the rows that there is room for, that are new, and that hold a record."""
        partials, run = sent.partials, self._run
        shape = run.shapes.of(partials.series)
        rows = self._quota.rows(writer.writer.role, shape)
        rows = list(range(len(partials.series))) if rows is None else rows
        times, counts = partials.times[:, 1].tolist(), partials.stats[:, COUNT].tolist()
        digests = self._identities.of_all(
            SeriesOrigin(writer.number, sent.scope, axis), shape, sent.step, sent.starts, times
        )
        is_new = run.recent.add_digests([digests[row] for row in rows], run.now)
        fresh = [row for row, new in zip(rows, is_new, strict=True) if new]
        tally.duplicate += len(rows) - len(fresh)
        repeated = self._sent_again(writer, sent, axis, shape)
        news = [row for row in fresh if counts[row] != 0 and not repeated[row]]
        tally.ignored += len(fresh) - len(news)
        if fresh and not news:
            writer.lived(partials.newest_ns, run.now)
        return news

    def _sent_again(self, writer: WriterState, sent: ThirdPartyPoints, axis: str, shape: Shape) -> Sequence[bool]:
        """Return which of them are samples of a closed step that say what the ones before said."""
        partials = sent.partials
        if sent.kind != "gauge":
            return [False] * len(partials.series)
        place = SeriesOrigin(writer.number, sent.scope, axis)
        closed = self._steps.kept_of(writer, axis, sent.step)
        values = partials.stats[:, SUM]
        found = self._samples.repeated(place, shape, sent.step, partials.newest_ns, values, closed or ())
        return [closed is not None and repeated for repeated in found.tolist()]

    def _is_sent_again(self, writer: WriterState, point: ThirdPartyPoint, axis: str) -> bool:
        if point.step is None or not (point.kind == "gauge" or _is_level(point)):
            return False
        shape = self._run.shapes.of(point.partials.series)
        place = SeriesOrigin(writer.number, point.scope, axis)
        closed = self._steps.kept_of(writer, axis, point.step)
        values = point.partials.stats[:, SUM]
        found = self._samples.repeated(place, shape, point.step, point.time_ns, values, closed or ())
        return closed is not None and bool(found[0])

    def _is_admitted(self, point: ThirdPartyPoint, tally: Tally) -> bool:
        if point.step is not None:
            return self._quota.series(point.writer.role, point.metric, point.attributes)
        if _OVERFLOW in point.attributes:
            self._say_that_steps_are_lost(point)
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

    def _say_that_steps_are_lost(self, point: ThirdPartyPoint) -> None:
        self._run.output.say(
            "sdk-overflow",
            f"An OpenTelemetry SDK of role {point.writer.role!r} has more steps than it keeps (2,000 by default): "
            "what it records beyond them arrives without a step (otel.metric.overflow). "
            "Export with delta temporality, which forgets each step that was sent.",
        )

    def _origin(self, start_ns: int, time_ns: int) -> int:
        """Where a run without writers of ours begins: with the stream, unless that is much older than the run."""
        recent = start_ns > 0 and self._run.now - start_ns / 1e9 < self._run.settings.identity_memory_s
        return start_ns if recent else time_ns

    def _is_new(self, writer: WriterState, axis: str, series: SeriesKey, point: ThirdPartyPoint) -> bool:
        place = SeriesOrigin(writer.number, point.scope, axis)
        identity = self._identities.of(place, series, point.step, point.start_ns, point.time_ns)
        return self._run.recent.add_digest(identity, self._run.now)

    def _piece(self, writer: WriterState, point: ThirdPartyPoint, fresh: Fresh) -> Piece:
        kind: Kind = "order" if _is_level(point) else _KINDS[point.kind]
        asked, name, stats = point.reduction, point.metric, fresh.stats
        if asked is None and point.step is None and point.kind == "sum" and point.monotonic:
            name, stats = f"{name}/rate", _per_second(stats, self._run.settings.foreign_window_s)
        elif asked is None and point.step is None and fresh.buckets is not None:
            asked = _SPREAD
        shape = self._run.shapes.of((SeriesKey(name, point.attributes, kind),))
        times = np.array([[point.time_ns, point.time_ns]], dtype=np.int64)
        buckets = None if fresh.buckets is None else (fresh.buckets,)
        reduction = self._reduction(point, asked)
        partials = Partials(shape.series, stats, times, buckets)
        meter = None if kind != "order" or _is_added_up(point) else point.scope
        # Points have no running number: their time puts them in order.
        return Piece(writer.source, point.time_ns, reduction, shape, partials, point.time_ns, meter)

    @staticmethod
    def _reduction(point: ThirdPartyPoint, asked: Reduction | None) -> Reduction:
        if _is_level(point):
            return _of_level(point)
        return _of_increases(point.kind, asked or _REDUCTIONS[point.kind])

    def _fresh(self, writer: WriterState, point: ThirdPartyPoint) -> Fresh | None:
        if _is_added_up(point):
            return self.streams.level(writer.number, point)
        if point.temporality != "cumulative" or point.kind == "gauge" or _is_level(point):
            return whole_of(point)
        return self.streams.increase(writer.number, point)


def _is_level(point: ThirdPartyPoint) -> bool:
    """Whether it says where a process stands, and not by how much that changed: its sum is over processes."""
    if point.kind == "gauge":
        return point.reduction is not None and point.reduction.sums_all
    return point.kind == "sum" and point.temporality == "cumulative" and not point.monotonic


def _is_added_up(point: ThirdPartyPoint) -> bool:
    """Whether what says where a process stands has to know all of its meters; of others each meter counts."""
    return _is_level(point) and _of_level(point).within == "last"


def _of_level(point: ThirdPartyPoint) -> Reduction:
    """Return the reduction of a level: its sum is over processes, never over the exports of one."""
    asked = point.reduction
    if asked is None:
        return _LEVEL
    return replace(asked, within="last") if asked.sums_all else asked


def _of_increases(kind: ForeignKind, asked: Reduction) -> Reduction:
    """Return the reduction of a counter: what a process adds in a step is one value, however often it exports."""
    is_alone = kind == "sum" and asked.within is None and asked.across != ("sum",)
    return replace(asked, within="sum") if is_alone else asked


def _per_second(stats: npt.NDArray[np.float64], seconds: float) -> npt.NDArray[np.float64]:
    """Return the stats of an increase as its rate over a window."""
    rates: npt.NDArray[np.float64] = stats.copy()
    rates[:, SUM : MAX + 1] /= seconds
    return rates
