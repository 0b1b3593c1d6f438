"""What a stored run has for an account of it, read once: values, findings, events, restarts, what is missing."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from otel_ml.flatten import leaves
from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml.wire.published_name import is_own, published_name
from otel_ml_exporters.records import JsonValue, Params, Record, Span, StepRecord, Table, Text
from otel_ml_service.stored_runs.missing_ranks import Silence, silences
from otel_ml_service.stored_runs.rank_places import hosts_of, stages_of
from otel_ml_service.stored_runs.read_records import is_live, records
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.run_history import History
from otel_ml_service.stored_runs.span_blocks import SpanBlocks

__all__ = ["Place", "Restart", "RunFacts", "Slow", "facts_of", "read_facts"]

_FINDINGS = "otel_ml/findings"

_FIRST_STEP_S = 600.0
"""Before the first step of a run began there is no other one to go by; it may compile for long."""

_LARGEST = 2**53
"""Whole numbers beyond this are not steps."""


class Place(NamedTuple):
    """A role and an axis: what has steps of its own."""

    role: str
    axis: str

    @property
    def prefix(self) -> str:
        """What the published names begin with, `generator/rollout/`; empty for a trainer's steps."""
        return published_name(self.role, self.axis, "x").removesuffix("x")


@dataclass(frozen=True, slots=True)
class Slow:
    """A published finding.

    Attributes:
        place: what the names of its role and axis begin with.
        kind: `slow` or `silent`, of a rank; `stage`, of a pipeline stage; `load` where ranks are given more to do;
            `shape` where times follow the data.
        rank: None where it is not a rank; `who` is `rank 3`, `stage 2` or `nobody`.
        last: its last step; the newest one that was looked at where it lasts.
        extra_s: seconds a step that it cost, over all its steps; 0 of a silent rank.
        slowdown: how much longer than the others it took, as a share.
        saved_s: seconds that a step would be shorter without it, where that was worked out.
        shows: the step of the span that shows it; `span` is that span's id.
        amount: the metric that says how much ranks are given to do; "" where none does.
        given: of a `load`, how many times as much as its peers.
        others_wait: of who is slow, whether most other ranks wait for it, as far as is known.
    """

    place: str
    axis: str
    kind: str
    rank: JsonValue
    who: str
    phase: str
    since: int
    last: int
    is_over: bool
    extra_s: float
    cost_s: float
    slowdown: float = 0.0
    saved_s: float | None = None
    shows: int | None = None
    span: str | None = None
    amount: str = ""
    given: float = 0.0
    others_wait: bool = True

    @property
    def accuses(self) -> bool:
        """Whether somebody can be told to be the one: not where times follow the data, or all pause."""
        return self.who != "nobody"


T = TypeVar("T")

SpansBetween = Callable[..., Iterator[Span]]
"""(first and last nanosecond, bytes that a line has to hold, …) → spans, as `SpanBlocks.between()` has them."""


def _no_spans(*_: object) -> Iterator[Span]:
    return iter(())


def _nowhere() -> Mapping[str, Mapping[int, str]]:
    return {}


def _of_no_stage(_: str) -> Mapping[int, int]:
    return {}


class Restart(NamedTuple):
    """The first step of another attempt of the job."""

    step: int
    attempt: int


class _Order(NamedTuple):
    """Steps of a place, when each was recorded, and when all up to it were; seconds since the epoch."""

    steps: list[int]
    times: list[float]
    done: list[float]


@dataclass
class RunFacts:
    """A run.

    Attributes:
        tables: name → the newest table of findings.
        events: texts that have a step: events of the program, too.
        times: place → step → when it was recorded, in seconds since the epoch.
        restarts: place → first steps of attempts.
        incomplete: place → steps of which a rank was missing.
        params: (seconds since the epoch, names) of parameters, as they came.
        is_live: a service records it now.
        spans: reads the stored spans of a stretch of time, and no others.
        hosts: reads role → rank → host; not known while a service has the run open.
        stages: reads rank → pipeline stage of a role; the same.
    """

    id: str
    history: History = field(default_factory=History)
    tables: dict[str, Table] = field(default_factory=dict)
    events: list[Text] = field(default_factory=list)
    times: dict[Place, dict[int, float]] = field(default_factory=dict)
    restarts: dict[Place, list[Restart]] = field(default_factory=dict)
    incomplete: dict[Place, set[int]] = field(default_factory=dict)
    params: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    is_live: bool = False
    spans: SpansBetween = _no_spans
    hosts: Callable[[], Mapping[str, Mapping[int, str]]] = _nowhere
    stages: Callable[[str], Mapping[int, int]] = _of_no_stage
    _attempts: dict[Place, int] = field(default_factory=dict)
    _worked_out: dict[object, Any] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Note what `History` does not keep."""
        # It was worked out of the records before this one.
        self._worked_out.clear()
        if isinstance(record, StepRecord):
            self._add_step(record)
        elif isinstance(record, Text) and record.step is not None and not is_own(record.name):
            self.events.append(record)
        elif isinstance(record, Table) and (record.name == _FINDINGS or record.name.endswith(f"/{_FINDINGS}")):
            self.tables[record.name] = record
        elif isinstance(record, Params):
            names = tuple(name for name, _ in leaves(record.params) if not name.startswith("otel_ml."))
            self.params.append((record.time, names))

    def reads(self, run: RunFolder) -> None:
        """Read from a run's folder what is read when it is asked for: spans, hosts and stages."""
        self.is_live = is_live(run)
        self.spans = SpanBlocks(run.jsonl.with_name("spans.jsonl")).between
        self.hosts, self.stages = partial(hosts_of, run), partial(stages_of, run)

    def _add_step(self, record: StepRecord) -> None:
        place = Place(record.role, record.axis)
        if not record.amendment:
            # When a correction came says nothing of when the step was done.
            self.times.setdefault(place, {})[record.step] = record.time
        # Seconds have no attempts, and wait for no rank.
        if record.axis == TIME_AXIS:
            return
        before = self._attempts.setdefault(place, record.attempt)
        if record.attempt > before:
            self._attempts[place] = record.attempt
            self.restarts.setdefault(place, []).append(Restart(record.step, record.attempt))
        if not record.amendment:
            lacking = self.incomplete.setdefault(place, set())
            (lacking.add if record.writers_missing else lacking.discard)(record.step)  # a later attempt may have all

    @property
    def places(self) -> list[Place]:
        """Roles and axes that have steps, the trainer's first, then by how many they are."""
        steps = [place for place in self.times if place.axis != TIME_AXIS]
        return sorted(
            steps, key=lambda place: (place.prefix != "", place.axis != DEFAULT_AXIS, -len(self.times[place]))
        )

    @property
    def findings(self) -> list[Slow]:
        """All that was found, what cost most first."""
        found = [slow for table in self.tables.values() for slow in _findings(table)]
        return sorted(found, key=lambda slow: -slow.cost_s)

    def silences(self, place: Place) -> list[Silence]:
        """Return which ranks of a place said nothing, and in which steps, by rank."""
        return silences(self.tables.get(place.prefix + _FINDINGS))

    def series(self, place: Place) -> Iterator[tuple[str, dict[int, float]]]:
        """Yield the user's metrics of a place: no timers, nothing of otel_ml's own."""
        for key, values in self.history.series.items():
            if key.axis != place.axis or is_own(key.name) or self.place_of(key.axis, key.name) != place:
                continue
            if not key.name.removeprefix(place.prefix).startswith("time/"):
                yield key.name, values

    def beside(self, place: Place, time: float) -> int | None:
        """Return the step of a place that was done at a time; None before the first and after the last one."""
        times = sorted((at, step) for step, at in self.times.get(place, {}).items())
        # A row has the time of its newest record, so what was done at `time` is in the first row of then or later.
        index = bisect_left(times, (time, -1))
        # Before the first row nobody knows which step was under way; at its very time it was that one.
        return times[index][1] if index < len(times) and (index > 0 or times[0][0] == time) else None

    def spans_of_steps(self, place: Place, first: int, last: int, *wanted: bytes) -> Iterator[Span]:
        """Yield the stored spans of the time in which the steps `first` to `last` of a place were recorded."""
        steps, times, done = self.once(RunFacts._in_order, place)
        begin, end = bisect_left(steps, first), bisect_right(steps, last)
        there = times[begin:end]
        if there:
            # What was done in a step lies between the rows of the step before and of the step itself.
            since = done[begin - 1] if begin else min(there) - _FIRST_STEP_S
            yield from self.spans(int(since * 1e9), int(max(there) * 1e9), *wanted)

    def _in_order(self, place: Place) -> _Order:
        times = self.times.get(place, {})
        steps = sorted(times)
        in_order = [times[step] for step in steps]
        # Rows of steps that closed late have later times than those behind them: `done` never falls, so that steps can
        # be cut out of the time by it.
        return _Order(steps, in_order, list(accumulate(in_order, max)))

    def once(self, work_out: Callable[[RunFacts, Place], T], place: Place) -> T:
        """Return what is worked out of a place: of a long run it is asked for hundreds of times."""
        key = work_out, place
        if key not in self._worked_out:
            self._worked_out[key] = work_out(self, place)
        found: T = self._worked_out[key]
        return found

    def place_of(self, axis: str, name: str) -> Place:
        """Return whose series a published name is."""
        fitting = [place for place in self.times if place.axis == axis and name.startswith(place.prefix)]
        # The trainer's names have no prefix, so every name fits it; whose prefix is longest is meant.
        return max(fitting, key=lambda place: len(place.prefix), default=Place("", axis))


def _findings(table: Table) -> Iterator[Slow]:
    place = table.name.removesuffix(_FINDINGS)
    for cells in table.rows:
        # By name: tables of earlier versions lack the columns that were added since.
        row = dict(zip(table.columns, cells, strict=False))
        since, until = _whole(row.get("since")), _whole(row.get("until"))
        if since is None:
            continue
        last = max(since, until if until is not None else table.step or since)
        cost = _figure(row.get("s in all"))
        phase, kind, span = str(row.get("phase") or ""), str(row.get("kind")), row.get("span")
        rank, saved = row.get("rank"), row.get("s saved per step")
        yield Slow(
            place, table.axis, kind, rank, str(row.get("place") or f"rank {rank}"), phase, since, last,
            until is not None, cost / (last - since + 1), cost, _figure(row.get("slowdown")),
            None if saved is None else _figure(saved), _whole(row.get("at step")), None if span is None else str(span),
            str(row.get("amount") or ""), _figure(row.get("given")), row.get("others wait") != "no",
        )  # fmt: skip


def _whole(value: JsonValue) -> int | None:
    return int(value) if isinstance(value, (int, float)) and abs(value) <= _LARGEST else None


def _figure(value: JsonValue) -> float:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def facts_of(run_id: str, found: Iterable[Record]) -> RunFacts:
    """Return what records, in the order of `seq`, amount to."""
    read = RunFacts(run_id)
    for record in found:
        read.add(record)
        read.history.add(record)
    return read


def read_facts(run: RunFolder) -> RunFacts:
    """Return what a run's folder holds, while the run goes on, too.

    Raises:
        RunUnreadableError: it is being recorded without the exporter `jsonl`, or is damaged.
    """
    read = facts_of(run.id, records(run))
    read.reads(run)
    return read
