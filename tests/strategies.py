"""The vocabulary of the engine's tests: ranks that record, what they send, and in which order it arrives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from otel_ml.wire.reduction import Reduction
from otel_ml.wire.reductions import STATISTICS
from otel_ml_exporters.json_text import finite_json, plain_json
from otel_ml_exporters.records import Record, StepRecord
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.observation import (
    Buckets,
    Event,
    Fragment,
    Observation,
    Partials,
    Position,
    SeriesKey,
    ShutdownMessage,
    ThirdPartyPoints,
    Totals,
    Watermark,
    Writer,
)
from otel_ml_service.aggregation.outcome import Outcome
from otel_ml_service.aggregation.points import single
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.aggregation.state_entries import who_entry, window_entry, writer_entry

START = 1_700_000_000.0
"""Seconds since the epoch at which every test's clock begins."""

integers = st.integers(-1000, 1000).map(float)
"""Whole numbers as floats: sums of them are exact in any order."""

finite = st.floats(-1e6, 1e6, allow_nan=False)
anything = st.one_of(integers, st.sampled_from([math.nan, math.inf, -math.inf]))


def writer(rank: int = 0, *, role: str = "trainer", instance: str | None = None, **facts: object) -> Writer:
    """Return a writer whose instance follows from role and rank."""
    return Writer("exp", role, instance or f"{role}-{rank}", rank, **facts)  # type: ignore[arg-type]


def buckets_of(values: Sequence[float], scale: int = 6) -> Buckets:
    """Bucket values as a worker does: (base^i, base^(i+1)]; non-finite ones are in none."""

    def counts(magnitudes: list[float]) -> tuple[int, tuple[int, ...]]:
        indices = [math.ceil(math.log2(value) * 2**scale) - 1 for value in magnitudes]
        if not indices:
            return 0, ()
        low = min(indices)
        return low, tuple(indices.count(index) for index in range(low, max(indices) + 1))

    finite_values = [value for value in values if math.isfinite(value)]
    positive = counts([value for value in finite_values if value > 0])
    negative = counts([-value for value in finite_values if value < 0])
    return Buckets(scale, sum(value == 0 for value in finite_values), *positive, *negative)


_UNTOLD = [math.nan for one in STATISTICS if one.of is not None]
"""A lone value tells by itself what sums of functions of it are."""


def stats_of(values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """Fold one writer's records of a metric as a worker does."""
    if len(values) == 1 and weights is None:  # a tenth of the time, in tests that record 300,000 times
        [value] = values
        return [1, value, value, value, (value - value) ** 2, math.nan, math.nan, *_UNTOLD]
    data = np.array(values, dtype=float)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = data.mean()
        m2 = float(((data - mean) ** 2).sum())
    wsum = wxsum = math.nan
    if weights is not None:
        wsum, wxsum = float(np.sum(weights)), float(np.dot(weights, data))
    with np.errstate(invalid="ignore", over="ignore"):
        total, low, high = float(data.sum()), float(data.min()), float(data.max())
    weighted = list(zip(values, [1.0] * len(data) if weights is None else weights, strict=True))
    sums = [sum(one.term(*pair) for pair in weighted) for one in STATISTICS if one.of is not None]
    return [len(data), total, low, high, m2, wsum, wxsum, *sums]


class Rank:
    """A fake worker process: what it records becomes the observations it would send.

    Examples:
        >>> rank = Rank(3)
        >>> [type(o).__name__ for o in rank.record(0, {"loss": 0.5}) + rank.done(0)]
        ['Fragment', 'Watermark']
    """

    def __init__(self, rank: int = 0, *, role: str = "trainer", clock: float = START, **facts: object) -> None:
        self.writer = writer(rank, role=role, **facts)
        self.clock = clock
        self._seq = itertools.count(1)
        self._points: dict[tuple[str, int], int] = {}
        self.recorded = self.sent_points = self.sent_values = self.events = 0
        self._shapes: dict[tuple[SeriesKey, ...], tuple[SeriesKey, ...]] = {}

    def record(
        self,
        step: int | None,
        values: Mapping[str, float | Sequence[float]],
        reduce: str = "mean",
        *,
        axis: str = "step",
        weights: Sequence[float] | None = None,
        attributes: tuple[tuple[str, str], ...] = (),
    ) -> list[Observation]:
        """Record values at a step; a sequence is several records of one metric."""
        reduction = Reduction.parse(reduce)
        rows: list[list[float]] = []
        keys: list[SeriesKey] = []
        buckets: list[Buckets | None] = []
        kinds = self._kinds(reduction)
        for name, value in values.items():
            records = [value] if isinstance(value, (int, float)) else list(value)
            self.recorded += len(records)
            self.sent_values += 1 if kinds == ["order"] else len(records)
            for kind in kinds:
                keys.append(SeriesKey(name, attributes, kind))  # type: ignore[arg-type]
                rows.append(self._row(kind, records, weights))
                buckets.append(buckets_of(records) if kind == "buckets" else None)
        return [self._fragment(reduction, axis, step, keys, rows, buckets)]

    def done(self, step: int, *, axis: str = "step") -> list[Observation]:
        """Leave a step: its watermark."""
        return [Watermark(self.writer, axis, step, self._points.get((axis, step), 0), next(self._seq))]

    def step(
        self, step: int, values: Mapping[str, float], reduce: str = "mean", axis: str = "step"
    ) -> list[Observation]:
        """Record values at a step and leave it."""
        return self.record(step, values, reduce, axis=axis) + self.done(step, axis=axis)

    def inside(self, step: int, *, axis: str = "step") -> list[Observation]:
        """Send the heartbeat."""
        boot_s = self.clock if self.writer.boot else 0.0
        return [Position(self.writer, axis, step, next(self._seq), round(self.clock * 1e9), boot_s)]

    def says_totals(self, step: int, *, axis: str = "step") -> list[Observation]:
        """Send the heartbeat that says what was sent in all."""
        [beat] = self.inside(step, axis=axis)
        return [beat._replace(totals=self.totals)]  # type: ignore[union-attr]

    @property
    def totals(self) -> Totals:
        """What was sent in all."""
        return Totals(self.recorded, self.sent_points, self.sent_values, self.events)

    def waits(self) -> list[Observation]:
        """Send the heartbeat of a process that is in no step."""
        boot_s = self.clock if self.writer.boot else 0.0
        return [Position(self.writer, None, None, next(self._seq), round(self.clock * 1e9), boot_s)]

    def bye(self, status: Any = "finished", **counted: Any) -> list[Observation]:
        """Say goodbye; `counted` are further fields of it."""
        time_ns = round(self.clock * 1e9)
        totals = {"values": self.sent_values, "events": self.events}
        return [
            ShutdownMessage(
                self.writer, next(self._seq), time_ns, status, self.recorded, self.sent_points, **(totals | counted)
            )
        ]

    def event(self, kind: str, body: object, step: int | None = None, **attributes: object) -> list[Observation]:
        """Send a log record."""
        named = {f"ml.{key}": value for key, value in attributes.items()}
        axis = "step" if step is not None else None
        self.events += 1
        time_ns = round(self.clock * 1e9)
        return [Event(self.writer, next(self._seq), kind, time_ns, axis, step, named, body)]  # type: ignore[arg-type]

    @staticmethod
    def _kinds(reduction: Reduction) -> list[str]:
        if reduction.needs_buckets and reduction.within is None:
            return ["buckets"]
        kinds = ["moments"] if reduction.needs_moments else []
        return kinds + (["order"] if reduction.needs_order else [])

    @staticmethod
    def _row(kind: str, records: Sequence[float], weights: Sequence[float] | None) -> list[float]:
        if kind == "order":
            return stats_of(records[-1:])[:4] + [math.nan] * (len(STATISTICS) - 4)
        return stats_of(records, weights)

    def _fragment(
        self,
        reduction: Reduction,
        axis: str,
        step: int | None,
        keys: list[SeriesKey],
        rows: list[list[float]],
        buckets: list[Buckets | None],
    ) -> Fragment:
        series = self._shapes.setdefault(tuple(keys), tuple(keys))
        times = np.full((len(rows), 2), round(self.clock * 1e9), dtype=np.int64)
        kept = tuple(buckets) if any(bucket is not None for bucket in buckets) else None
        partials = Partials(series, np.array(rows, dtype=float).reshape(len(rows), len(STATISTICS)), times, kept)
        if step is not None:
            self._points[axis, step] = self._points.get((axis, step), 0) + len(rows)
        self.sent_points += len(rows)
        place = None if step is None else axis
        return Fragment(self.writer, place, step, reduction, next(self._seq), len(rows), partials)


def split(fragment: Fragment, at: int) -> list[Fragment]:
    """Split a fragment as a Collector splits a ScopeMetrics: same running number, same total."""
    pieces = []
    for rows in (slice(None, at), slice(at, None)):
        partials = fragment.partials
        buckets = None if partials.buckets is None else partials.buckets[rows]
        part = Partials(partials.series[rows], partials.stats[rows], partials.times[rows], buckets)
        if part.series:
            pieces.append(
                Fragment(
                    fragment.writer,
                    fragment.axis,
                    fragment.step,
                    fragment.reduction,
                    fragment.seq,
                    fragment.seq_points,
                    part,
                )
            )
    return pieces


def written_anew(engine: Engine) -> dict[str, bytes]:
    """Return those entries of a restored engine's state that are written as a whole, though nothing has changed."""
    run, snapshot = engine._run, engine._snapshot
    snapshot._written.clear()
    entries = dict(snapshot._compared())
    entries |= {f"who/{writer.number}": plain_json(who_entry(writer)) for writer in run.writers}
    entries |= {f"writer/{writer.number}": finite_json(writer_entry(writer)) for writer in run.writers}
    entries["summaries"] = plain_json(engine._summaries.state())
    entries["said"] = plain_json(list(run.output.said))
    return entries


def windows_anew(engine: Engine) -> dict[str, bytes]:
    """Return the entries of all windows that an engine has in memory, as if each had changed."""
    found = {}
    for attempt in engine._run.step_streams:
        for window in [*attempt.open.values(), *attempt.retained.values()]:
            found[f"unit/{window.number}"] = plain_json(window_entry(attempt, window))
    return found


class Service:
    """An engine with a clock that only the test moves, and everything it ever handed out.

    Attributes:
        state: what a restart would find committed.
    """

    def __init__(self, settings: EngineSettings | None = None) -> None:
        self.settings = settings or EngineSettings()
        self.engine = Engine("exp", self.settings)
        self.now = START
        self.state: dict[str, bytes] = {}
        self.records: list[Record] = []
        self.notices: list[str] = []
        self.outcomes: list[Outcome] = []

    def take(self, *batches: Iterable[Observation]) -> None:
        """Let observations arrive now, in this order, and commit."""
        for observation in itertools.chain(*batches):
            self.engine.observe(observation, self.now)
        self.settle()

    def wait(self, seconds: float, *alive: Rank) -> None:
        """Let time pass in steps of a second; `alive` ranks send their heartbeat on an axis nobody closes.

        As the service itself, it commits where something arrives and where something is due, and at the end: hundreds
        of commits of nothing took more time than all else.
        """
        for left in reversed(range(math.ceil(seconds))):
            self.now += min(1.0, seconds)
            for rank in alive:
                rank.clock = max(rank.clock, self.now)
                self.engine.observe(rank.inside(0, axis="heartbeat")[0], self.now)
            deadline = self.engine.next_deadline()
            if alive or not left or (deadline is not None and deadline <= self.now):
                self.settle()
            else:
                self.engine.advance(self.now)

    def miss(self, *ranks: Rank) -> None:
        """Let the host say that processes are gone, and commit."""
        self.engine.note_died([rank.writer for rank in ranks], self.now)
        self.settle()

    def leave(self, *ranks: Rank) -> None:
        """Let the host say that processes are gone, of which more may come."""
        self.engine.note_died([], self.now, [rank.writer for rank in ranks])

    def settle(self) -> None:
        """Advance and commit."""
        self.engine.advance(self.now)
        outcome = self.engine.take()
        self.outcomes.append(outcome)
        self.records += outcome.records
        self.notices += outcome.notices
        for key, value in outcome.changes.items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value

    def restart(self) -> None:
        """Start again from what was committed: it says what is in memory, and written anew it is the same."""
        assert windows_anew(self.engine) == {key: value for key, value in self.state.items() if key[:5] == "unit/"}
        written = written_anew(Engine("exp", self.settings, self.state))
        assert {key: written.get(key) for key in self.state if key in written} == {
            key: value for key, value in self.state.items() if key in written
        }
        self.engine = Engine("exp", self.settings, self.state)

    def rows(self, *, axis: str = "step", role: str = "trainer", own: bool = False) -> dict[int, dict[str, float]]:
        """Return step → values of all rows, amendments applied; without `otel_ml/…` unless `own`."""
        found: dict[int, dict[str, float]] = {}
        for record in self.steps(axis=axis, role=role):
            kept = {name: value for name, value in record.values.items() if own or "otel_ml/" not in name}
            found.setdefault(record.step, {}).update(kept)
        return found

    def steps(self, *, axis: str = "step", role: str = "trainer") -> list[StepRecord]:
        """Return the step records of an axis, in order."""
        steps = [record for record in self.records if isinstance(record, StepRecord)]
        return [record for record in steps if record.axis == axis and record.role == role]

    @property
    def amendments(self) -> int:
        """How many rows amend earlier ones."""
        return sum(isinstance(record, StepRecord) and record.amendment for record in self.records)


def cumulative(
    source: Writer,
    metric: str,
    value: float,
    *,
    start: float,
    time: float,
    step: int | None = None,
    kind: str = "sum",
    temporality: str = "cumulative",
    monotonic: bool | None = True,
    reduction: str | None = None,
) -> ThirdPartyPoints:
    """Return a point as another OTel SDK sends it."""
    key = SeriesKey(metric, (), "order" if kind == "gauge" else "moments")
    time_ns = round(time * 1e9)
    partials = Partials((key,), single(value), np.array([[time_ns, time_ns]], dtype=np.int64))
    return ThirdPartyPoints(
        writer=source,
        kind=kind,  # type: ignore[arg-type]
        temporality=temporality,  # type: ignore[arg-type]
        monotonic=monotonic,
        axis=None,
        step=step,
        reduction=None if reduction is None else Reduction.parse(reduction),
        starts=(round(start * 1e9),),
        partials=partials,
    )
