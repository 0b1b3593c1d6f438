"""What the receiver hands to the engine: decoded, validated, free of protobuf.

One request becomes many observations. Everything a writer of ours sends carries its running number
`seq`; what others send has `seq=None` and is identified by its own coordinates (docs/protocol.md §4.5).

What comes with every step is a tuple: to make one takes a third of what a frozen dataclass takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Literal, NamedTuple

from otel_ml.wire.reduction import Reduction
from otel_ml_exporters.records import JsonValue, Span
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.points import Attributes, Buckets, Kind, Partials, Points, SeriesKey
from otel_ml_service.findings.phases import TimerKind

__all__ = [
    "Attributes",
    "Buckets",
    "Event",
    "Fragment",
    "Kind",
    "Observation",
    "Partials",
    "Position",
    "Sent",
    "SeriesKey",
    "ShutdownMessage",
    "Spans",
    "Temporality",
    "ThirdPartyKind",
    "ThirdPartyPoints",
    "Totals",
    "Watermark",
    "Writer",
    "part_of",
    "recorded_at",
    "size_of",
]

_OBSERVATION_BYTES = 250
"""What an observation takes in memory beside its points, spans or body, about."""

_SPAN_BYTES = 1_000
"""What a span takes that is not text, about, with a few attributes."""


@dataclass(frozen=True, slots=True)
class Writer:
    """One process incarnation, from the OTLP resource. Equal resources give equal writers.

    Attributes:
        instance: `service.instance.id`; changes at fork and restart.
        attempt: the launcher's count of restarts, or None where it does not count.
        parent: instance of the process this one was forked or spawned from, or None.
        topology: (dimension, coordinate, size), sorted by dimension.
        with_role: False where the user said `init(prefix="")`.
        boot, born: when it began, in seconds of a clock that all processes of a boot of a machine share; "" and 0
            where it does not say.
        pid_namespace: in which `pid` counts, on that boot; "" where it does not say.
        starter: instance that started it in a place of its own, or None where nobody is said to have.
    """

    experiment: str
    role: str
    instance: str
    rank: int = 0
    world_size: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    parent: str | None = None
    topology: tuple[tuple[str, int, int], ...] = ()
    host: str = ""
    pid: int = 0
    experiment_name: str = ""
    run_name: str = ""
    with_role: bool = True
    tags: tuple[str, ...] = ()
    notes: str | None = None
    boot: str = ""
    born: float = 0.0
    pid_namespace: str = ""
    starter: str | None = None


class Fragment(NamedTuple):
    """Points of one (step, axis, reduction) of one writer, from one ScopeMetrics or a piece of it.

    `seq_points` is how many points the whole ScopeMetrics had when it was sent; a Collector may have
    split it, then several fragments carry the same `seq`. `axis` and `step` are None together: the
    writer has no step.
    """

    writer: Writer
    axis: str | None
    step: int | None
    reduction: Reduction
    seq: int
    seq_points: int
    partials: Points


class Watermark(NamedTuple):
    """`otel_ml.step.points`: how many points the writer sent for (axis, step) so far; it is done with the step."""

    writer: Writer
    axis: str
    step: int
    points: int
    seq: int


class Totals(NamedTuple):
    """What a writer says it has sent with lower running numbers, in all of its life (ADR 0031).

    Attributes:
        recorded: values its user recorded, some of which may not be sent yet.
        points: metric points, without those of the protocol itself.
        values: of the user, in those points; None where a writer does not say.
        events: log records, without the shutdown message.
    """

    recorded: int
    points: int
    values: int | None = None
    events: int | None = None


class Position(NamedTuple):
    """`otel_ml.position`: the heartbeat; `step` is the one the writer is inside of, on `axis`, None where in none.

    `boot_s` is when it was taken, by the clock of the writer's boot; 0 where it does not say. Now and then it brings
    `totals`, and once what `define_metric()` said of names: `declared`, and `timed(…, kind=…)` of timers: `kinds`.
    """

    writer: Writer
    axis: str | None
    step: int | None
    seq: int
    time_ns: int
    boot_s: float = 0.0
    totals: Totals | None = None
    declared: tuple[tuple[str, Reduction], ...] = ()
    kinds: tuple[tuple[str, TimerKind], ...] = ()


@dataclass(frozen=True, slots=True)
class ShutdownMessage:
    """`ml.writer.end`: nothing more comes from this writer. Totals are running totals of the writer's life.

    Attributes:
        recorded: values the user recorded.
        points, values, events: see `totals`.
        dropped: what was lost in the worker, by reason.
        given_up: of the points, those it knows to be lost, by reason: they are in `dropped`, too.
        overhead_s: seconds spent on the threads of the user.
        duration_s: seconds since `init()`.
    """

    writer: Writer
    seq: int
    time_ns: int
    status: Literal["finished", "failed", "killed"]
    recorded: int = 0
    points: int = 0
    dropped: Mapping[str, int] | None = None
    overhead_s: float = 0.0
    duration_s: float = 0.0
    values: int | None = None
    events: int | None = None
    given_up: Mapping[str, int] | None = None

    @property
    def totals(self) -> Totals:
        """What the writer has sent in all."""
        return Totals(self.recorded, self.points, self.values, self.events)


ThirdPartyKind = Literal["sum", "gauge", "histogram", "exponential"]
Temporality = Literal["delta", "cumulative", "none"]


class ThirdPartyPoints(NamedTuple):
    """Points of any OTel SDK or the Collector's own receivers: no `seq`, any temporality; one (step, axis, reduction).

    Attributes:
        temporality: "none" of kinds that have none.
        monotonic: of Sums; None of other kinds.
        axis, step: None together: the points name no step.
        reduction: None where it is not said; then that of the kind.
        starts: `start_time_unix_nano` of each; 0 where not sent.
        partials: each series once, as sent (cumulative or delta); of a Sum, and of a Gauge, its value is the sum.
        scope: tells instrumentation scopes apart; "" where it has no name.
    """

    writer: Writer
    kind: ThirdPartyKind
    temporality: Temporality
    monotonic: bool | None
    axis: str | None
    step: int | None
    reduction: Reduction | None
    starts: tuple[int, ...]
    partials: Points
    scope: str = ""

    @property
    def is_rate(self) -> bool:
        """Whether they are increases over time, of which nobody said how they are reduced."""
        return self.kind == "sum" and bool(self.monotonic) and self.step is None and self.reduction is None

    def name_of(self, key: SeriesKey) -> str:
        """Return what one of their series is called in a row."""
        return f"{key.name}/rate" if self.is_rate else key.name

    def some(self, rows: list[int]) -> ThirdPartyPoints:
        """Return only these rows."""
        return self._replace(starts=tuple(self.starts[row] for row in rows), partials=self.partials.some(rows))


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A log record: params, text, table, image, …, or the user's own event (docs/protocol.md §4.9).

    Attributes:
        kind: `event_name`, e.g. `ml.text`.
        seq: None from third-party SDKs.
        body: decoded AnyValue; bytes for image, audio and inline artifacts.
    """

    writer: Writer
    seq: int | None
    kind: str
    time_ns: int
    axis: str | None
    step: int | None
    attributes: Mapping[str, JsonValue]
    body: JsonValue | bytes


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Finished spans of one writer; identified by their ids.

    Attributes:
        timers: the span ids, where all are timers of ours; a range where each is one more than the one before.
    """

    writer: Writer
    spans: Sequence[Span]
    timers: Sequence[int] = ()


Sent = Fragment | ThirdPartyPoints
"""What comes with points of a step."""


def part_of(sent: Sent, partials: Points) -> Sent:
    """Return what was sent with only some of its points, as it was sent: what is kept of them may be a difference."""
    if len(partials.series) == len(sent.partials.series):
        return sent
    if isinstance(sent, Fragment):
        return sent._replace(partials=partials)
    kept = {(key.name, key.attributes) for key in partials.series}
    rows = [row for row, key in enumerate(sent.partials.series) if (sent.name_of(key), key.attributes) in kept]
    return sent.some(rows)


Observation = Sent | Watermark | Position | ShutdownMessage | Event | Spans


def size_of(observation: Observation) -> int:
    """Return how many bytes of memory an observation takes, about, without what it shares with others."""
    if isinstance(observation, (Fragment, ThirdPartyPoints)):
        return _OBSERVATION_BYTES + observation.partials.nbytes
    if isinstance(observation, Spans):
        spans = observation.spans
        return _OBSERVATION_BYTES + (spans.nbytes if isinstance(spans, SpanLines) else _SPAN_BYTES * len(spans))
    if isinstance(observation, Event):
        return _OBSERVATION_BYTES + _memory_of(observation.attributes) + _memory_of(observation.body)
    return _OBSERVATION_BYTES


def _memory_of(value: JsonValue | bytes) -> int:
    own = getsizeof(value)
    if isinstance(value, Mapping):
        return own + sum(getsizeof(key) + _memory_of(item) for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return own + sum(map(_memory_of, value))
    return own


def recorded_at(observation: Observation, otherwise: float) -> float:
    """Return when a writer of ours recorded it, in seconds since the epoch; `otherwise` where it does not say.

    Examples:
        >>> recorded_at(Position(Writer("run", "trainer", "a"), "step", 0, 1, 2_500_000_000), 9.0)
        2.5
    """
    if isinstance(observation, Fragment):
        times = observation.partials.times
        time_ns = int(times.min()) if len(times) else 0
    elif isinstance(observation, (Event, Position, ShutdownMessage)):
        time_ns = observation.time_ns
    else:
        time_ns = 0
    return time_ns / 1e9 if time_ns > 0 else otherwise
