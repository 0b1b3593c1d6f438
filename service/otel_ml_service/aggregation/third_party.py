"""Points of any OpenTelemetry SDK or Collector receiver: deltas out of any temporality (docs/protocol.md §4.11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.cumulative_streams import CumulativeStreams, Fresh
from otel_ml_service.aggregation.fold import COUNT, MAX, SUM
from otel_ml_service.aggregation.gauge_samples import GaugeSamples
from otel_ml_service.aggregation.observation import (
    Kind,
    Partials,
    SeriesKey,
    ThirdPartyKind,
    ThirdPartyPoints,
)
from otel_ml_service.aggregation.piece import Piece, Shape
from otel_ml_service.aggregation.point_identities import PointIdentities, SeriesOrigin
from otel_ml_service.aggregation.points import Points
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


_MAX_SHAPES = 4096
"""Shapes of which something is remembered; a cache."""


class ThirdParty:
    """Owns the streams of points without running numbers."""

    def __init__(self, run: RunState, steps: Steps, quota: Quota) -> None:
        self._run = run
        self._quota = quota
        self._steps = steps
        self.streams = CumulativeStreams(run)
        self._budget = SeriesBudget(run.settings)
        self._identities = PointIdentities()
        self._samples = GaugeSamples()
        self._taken_whole: set[tuple[str, int]] = set()
        self._in_rows: dict[int, tuple[tuple[SeriesKey, ...], tuple[SeriesKey, ...]]] = {}

    def points(self, writer: WriterState, sent: ThirdPartyPoints) -> None:
        """Take points of one kind and step."""
        run, role = self._run, writer.writer.role
        axis = TIME_AXIS if sent.step is None else sent.axis or DEFAULT_AXIS
        count = len(sent.starts)
        if not self._quota.axis(role, axis, sent):
            return
        tally = run.step_streams.stream(role, axis).tally
        tally.receive(count)
        shape = run.shapes.of(sent.partials.series)
        rows = self._admitted(writer, sent, shape, tally)
        if not rows:
            return
        times = sent.partials.last_times()
        if run.origin_ns is None:
            # The first point stands for all: an SDK stamps those of an export alike.
            run.begin_time(self._origin(sent.starts[rows[0]], times[rows[0]]))
        unknown = self._unknown(writer, sent, axis, shape, rows, times)
        tally.repeat(len(rows) - len(unknown))
        news = self._news(writer, sent, axis, shape, unknown)
        ignored = len(unknown) - len(news.series)
        # Nothing new is a sign of life all the same.
        if ignored:
            tally.ignore(ignored)
            writer.lived(sent.partials.newest_ns, run.now)
        for piece in self._pieces(writer, sent, news):
            if sent.step is None:
                self._steps.stepless.to_windows(piece, role, sent, run.settings.third_party_window_s)
            else:
                self._steps.points(writer, sent, piece, axis, sent.step)

    def _admitted(self, writer: WriterState, sent: ThirdPartyPoints, shape: Shape, tally: Tally) -> list[int]:
        """Return the rows that there is room for."""
        role, every = writer.writer.role, list(range(len(shape.series)))
        # What has a step is within the limit of the run's own series; what has none has a budget beside it
        # (docs/protocol.md §4.11).
        if sent.step is not None:
            rows = self._quota.rows(role, shape, sent)
            return every if rows is None else rows
        if (role, shape.number) in self._taken_whole:
            return every
        rows = [row for row in every if self._is_admitted(role, shape.series[row], tally)]
        if len(rows) == len(every):
            if len(self._taken_whole) >= _MAX_SHAPES:
                self._taken_whole.clear()
            self._taken_whole.add((role, shape.number))
        return rows

    def _is_admitted(self, role: str, key: SeriesKey, tally: Tally) -> bool:
        if _OVERFLOW in key.attributes:
            self._say_that_steps_are_lost(role)
        verdict = self._budget.verdict(role, key.name, key.attributes)
        if verdict == "denied":
            tally.ignore(1)
        elif verdict == "overflow":
            tally.leave_out(1)
            self._run.output.say(
                "too-many-scraped",
                f"More than {self._run.settings.scraped_series:,} series without a step arrive; the rest is left out "
                "and counted (otel_ml/overflow). "
                "Name what you need in otel-ml.yaml: scraped: {allow: [...], deny: [...]}.",
            )
        return verdict == "taken"

    def _unknown(
        self, writer: WriterState, sent: ThirdPartyPoints, axis: str, shape: Shape, rows: list[int], times: list[int]
    ) -> list[int]:
        """Return the rows that did not come before."""
        run, origin = self._run, SeriesOrigin(writer.number, sent.scope, axis)
        news = run.recent_points.news(origin, shape, sent.step, sent.starts, times, rows, run.now)
        # Digests of points are there for one generation after the state of an older version was taken up.
        if not (news and run.recent.has_points(run.now)):
            return news
        digests = self._identities.of_all(origin, shape, sent.step, sent.starts, times)
        return [row for row in news if not run.recent.knows(digests[row])]

    def _news(self, writer: WriterState, sent: ThirdPartyPoints, axis: str, shape: Shape, rows: list[int]) -> Points:
        """Return what rows say that was not known: without those that hold no record, or were sent again."""
        fresh = self._fresh(writer, sent, shape, rows)
        again = self._sent_again(writer, sent, axis, shape)
        # Each of these is one value, so none of them is empty.
        if again is None and fresh.partials.is_lone:
            return fresh.partials
        kept = fresh.partials.stats[:, COUNT] != 0
        if again is not None:
            kept &= ~again[fresh.rows]
        return fresh.partials if kept.all() else fresh.partials.some(np.flatnonzero(kept).tolist())

    def _sent_again(
        self, writer: WriterState, sent: ThirdPartyPoints, axis: str, shape: Shape
    ) -> npt.NDArray[np.bool_] | None:
        """Return which of them are samples of a closed step that say what the ones before said; None where none are."""
        if sent.step is None or not (sent.kind == "gauge" or _is_level(sent)):
            return None
        place = SeriesOrigin(writer.number, sent.scope, axis)
        closed = self._steps.kept_of(writer, axis, sent.step)
        return self._samples.repeated(place, shape, sent.step, sent.partials.newest_ns, sent.partials, closed)

    def _say_that_steps_are_lost(self, role: str) -> None:
        self._run.output.say(
            "sdk-overflow",
            f"An OpenTelemetry SDK of role {role!r} has more steps than it keeps (2,000 by default): "
            "what it records beyond them arrives without a step (otel.metric.overflow). "
            "Export with delta temporality, which forgets each step that was sent.",
        )

    def _origin(self, start_ns: int, time_ns: int) -> int:
        """Where a run without writers of ours begins: with the stream, unless that is much older than the run."""
        recent = start_ns > 0 and self._run.now - start_ns / 1e9 < self._run.settings.identity_memory_s
        return start_ns if recent else time_ns

    def _fresh(self, writer: WriterState, sent: ThirdPartyPoints, shape: Shape, rows: list[int]) -> Fresh:
        if not rows:
            return Fresh(rows, sent.partials.some(rows))
        if sent.temporality == "cumulative" or _is_added_up(sent):
            # Once: what follows reads the columns several times, and a message would be read anew for each.
            sent = sent._replace(partials=sent.partials.unpack())
        if _is_added_up(sent):
            return self.streams.levels(writer.number, sent, shape, rows)
        if sent.temporality == "cumulative" and sent.kind != "gauge" and not _is_level(sent):
            return self.streams.increases(writer.number, sent, shape, rows)
        return Fresh(rows, _some(sent.partials, rows))

    def _pieces(self, writer: WriterState, sent: ThirdPartyPoints, news: Points) -> Iterator[Piece]:
        """Yield what goes into rows, in parts of which each has one reduction."""
        # Samples of a gauge: of each meter the newest of a step counts. What was added up is of all meters already.
        meter = None if _kind_of(sent) != "order" or _is_added_up(sent) else sent.scope
        for asked, partials in _by_reduction(sent, news):
            newest = partials.newest_ns
            shape = self._run.shapes.of(self._series_in_rows(sent, partials.series))
            kept = partials
            # Else the points stay as they came, perhaps as bytes.
            if shape.series is not kept.series or sent.is_rate or not _is_of_an_interval(sent):
                kept = self._in_rows_as(sent, shape, partials.unpack())
            # Points have no running number: their time puts them in order. An SDK stamps the meters of an export alike,
            # and the total that a later one makes known is of more of them.
            seq = newest + (self.streams.heard_before(writer.number, sent, newest) if _is_added_up(sent) else 0)
            yield Piece(writer.source, seq, _reduction_of(sent, asked), shape, kept, newest, meter)

    def _in_rows_as(self, sent: ThirdPartyPoints, shape: Shape, news: Partials) -> Partials:
        """Return points under their names in rows, with the times that count there, and increases as rates."""
        _, stats, times, buckets = news
        if sent.is_rate:
            stats = _per_second(stats, self._run.settings.third_party_window_s)
        if not _is_of_an_interval(sent):
            times = np.repeat(times[:, 1:], 2, axis=1)
        return Partials(shape.series, stats, times, buckets)

    def _series_in_rows(self, sent: ThirdPartyPoints, series: tuple[SeriesKey, ...]) -> tuple[SeriesKey, ...]:
        """Return what series are called in a row, and as which kind they are reduced there."""
        kind = _kind_of(sent)
        if not sent.is_rate and series[0].kind == kind:
            return series
        # An id may have gone over to another tuple, so the tuple that had it is kept and compared.
        known = self._in_rows.get(id(series))
        if known is None or known[0] is not series:
            if len(self._in_rows) >= _MAX_SHAPES:
                self._in_rows.clear()
            renamed = tuple(SeriesKey(sent.name_of(key), key.attributes, kind) for key in series)
            known = self._in_rows[id(series)] = series, renamed
        return known[1]


def _some(points: Points, rows: list[int]) -> Points:
    return points if len(rows) == len(points.series) else points.some(rows)


def _by_reduction(sent: ThirdPartyPoints, news: Points) -> Iterator[tuple[Reduction | None, Points]]:
    """Yield points with the reduction that they ask for: what is scraped and has buckets is asked for its spread.

    What has no buckets is apart: where one of its piece has some, it would count as a point whose buckets are empty.
    """
    spread = _SPREAD if sent.step is None and sent.reduction is None else sent.reduction
    for partials in _by_time(sent, news):
        if partials.buckets is None:
            if len(partials.series):
                yield sent.reduction, partials
            continue
        rows: dict[bool, list[int]] = {True: [], False: []}
        for row in range(len(partials.series)):
            rows[partials.buckets is not None and partials.buckets[row] is not None].append(row)
        if rows[True]:
            yield spread, _some(partials, rows[True])
        if rows[False]:
            yield sent.reduction, _some(partials, rows[False]).unpack()._replace(buckets=None)


def _by_time(sent: ThirdPartyPoints, news: Points) -> Iterator[Points]:
    """Yield points apart whose order among others their time decides: an SDK stamps all points of an export alike."""
    if _is_of_an_interval(sent):
        yield news
        return
    times = news.last_times()
    moments = sorted(set(times))
    if len(moments) < 2:
        yield news
        return
    for time_ns in moments:
        yield news.some([row for row, one in enumerate(times) if one == time_ns])


def _is_of_an_interval(sent: ThirdPartyPoints) -> bool:
    """Whether their start is that of what they say: of others it is that of their stream."""
    return sent.step is not None and sent.temporality != "cumulative" and not _is_added_up(sent)


def _kind_of(sent: ThirdPartyPoints) -> Kind:
    return "order" if _is_level(sent) else _KINDS[sent.kind]


def _reduction_of(sent: ThirdPartyPoints, asked: Reduction | None) -> Reduction:
    return _of_level(sent) if _is_level(sent) else _of_increases(sent.kind, asked or _REDUCTIONS[sent.kind])


def _is_level(sent: ThirdPartyPoints) -> bool:
    """Whether it says where a process stands, and not by how much that changed: its sum is over processes."""
    if sent.kind == "gauge":
        return sent.reduction is not None and sent.reduction.sums_all
    return sent.kind == "sum" and sent.temporality == "cumulative" and not sent.monotonic


def _is_added_up(sent: ThirdPartyPoints) -> bool:
    """Whether what says where a process stands has to know all of its meters; of others each meter counts."""
    return _is_level(sent) and _of_level(sent).within == "last"


def _of_level(sent: ThirdPartyPoints) -> Reduction:
    """Return the reduction of a level: its sum is over processes, never over the exports of one."""
    asked = sent.reduction
    if asked is None:
        return _LEVEL
    return replace(asked, within="last") if asked.sums_all else asked


def _of_increases(kind: ThirdPartyKind, asked: Reduction) -> Reduction:
    """Return the reduction of a counter: what a process adds in a step is one value, however often it exports."""
    is_alone = kind == "sum" and asked.within is None and asked.across != ("sum",)
    return replace(asked, within="sum") if is_alone else asked


def _per_second(stats: npt.NDArray[np.float64], seconds: float) -> npt.NDArray[np.float64]:
    """Return the stats of an increase as its rate over a window."""
    rates: npt.NDArray[np.float64] = stats.copy()
    rates[:, SUM : MAX + 1] /= seconds
    return rates
