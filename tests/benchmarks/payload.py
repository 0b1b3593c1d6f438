"""Requests as our own workers send them, for many ranks and steps, at next to no cost.

A step is recorded and encoded once by the worker's own code. What differs between steps (the step, `ml.seq`, ids of
spans) is then said anew: of metrics in the header of each scope, which the worker's code writes; of spans in place.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from otel_ml._internal.events.log_record import LogRecord, encode_scope_logs
from otel_ml._internal.identity.ranks import JobPlace
from otel_ml._internal.identity.resource import encode_resource
from otel_ml._internal.identity.run_identity import Identity
from otel_ml._internal.lifecycle.isolation import forget_everything
from otel_ml._internal.messages.encode_metrics import scope_bytes
from otel_ml._internal.messages.recorder import RecordSettings, recorder
from otel_ml.config import Config
from otel_ml.wire import attributes as keys
from otel_ml.wire.protobuf import field, key_value
from otel_ml.wire.spool_format import request_body

__all__ = [
    "FIRST",
    "VARIANTS",
    "StepTemplate",
    "expected_mean",
    "goodbye",
    "metric_name",
    "resource_of",
    "step_template",
]

FIRST = 2**14
"""The first step; from here to 2²¹ a step's encoding is three bytes long, and can be replaced in place."""

VARIANTS = 8
"""Ranks differ in their values: rank r records those of variant r % 8."""


def metric_name(index: int) -> str:
    return f"train/metric_{index}"


def value_of(variant: int, index: int) -> float:
    """Return what ranks of a variant record: exact in binary, so that any order of summing gives the same mean."""
    return index + variant / 8


def expected_mean(ranks: int, index: int) -> float:
    """Return the mean of a metric over all ranks."""
    return sum(value_of(rank % VARIANTS, index) for rank in range(ranks)) / ranks


@dataclass(frozen=True)
class Scope:
    """What of a ScopeMetrics is the same in every step: the fields of its header, and the encoded metrics."""

    axis: str
    reduction: str | None
    points: int
    metrics: bytes

    def at(self, step: int, seq: int) -> bytes:
        """Return it with its tag, as that of a step."""
        return field(2, scope_bytes(step, self.axis, self.reduction, seq, self.points) + self.metrics)


@dataclass(frozen=True)
class StepTemplate:
    """One encoded step.

    Attributes:
        scopes: the watermark is the last.
        spans: the ScopeSpans of the step with its tag, cut at every place where a span's id stands.
        ids: which of the step's spans each cut belongs to.
    """

    points: int
    scopes: tuple[Scope, ...]
    spans: tuple[bytes, ...]
    ids: tuple[int, ...]

    def metrics_at(self, step: int, first_seq: int, scopes: int | None = None) -> bytes:
        """Return the step's scopes, or the first `scopes` of them, as those of another step."""
        return b"".join(scope.at(step, first_seq + number) for number, scope in enumerate(self.scopes[:scopes]))

    def spans_at(self, step: int) -> tuple[bytes, ...]:
        """Return the cut spans as those of another step; `with_ids` makes them whole."""
        old, new = key_value(keys.STEP, FIRST), key_value(keys.STEP, step)
        return tuple(part.replace(old, new) for part in self.spans)

    def with_ids(self, cut: Sequence[bytes], first_id: int) -> bytes:
        """Return whole spans with ids of their own, counted up from `first_id`."""
        ids = [(first_id + span).to_bytes(8, "big") for span in self.ids]
        return b"".join(itertools.chain.from_iterable(zip(cut, [*ids, b""], strict=True)))


@cache
def step_template(
    metrics: int,
    timers: int,
    variant: int,
    *,
    reduction: str = "mean",
    attributes: int = 0,
    weight: float | None = None,
) -> StepTemplate:
    """Return a step of `metrics` values, each with `attributes`, and `timers` timers with their spans."""
    from otel_ml._internal.record.log import log
    from otel_ml._internal.steps.step import set_step
    from otel_ml._internal.timers.timing import timed

    forget_everything()
    recorder.configure(RecordSettings(spans_per_step=timers))
    recorder.enabled = True
    set_step(FIRST)
    values = {metric_name(index): value_of(variant, index) for index in range(metrics)}
    within, _, across = reduction.rpartition(">")
    log(
        values,
        reduce=across,
        within=within or None,
        weight=weight,
        attributes={f"layer_{index}": f"block {index}" for index in range(attributes)} or None,
    )
    for index in range(timers):
        with timed(f"phase_{index}"):
            pass
    set_step(FIRST + 1)
    batch = recorder.collect(time.time_ns() + 10**9)
    # The position comes after the watermark; a heartbeat needs no load.
    scopes = tuple(_scope(body) for body in batch.scope_metrics if keys.POSITION.encode() not in body)
    spans = b"".join(field(2, body) for body in batch.scope_spans)
    cut, ids = _cut(spans, timers)
    forget_everything()
    return StepTemplate(batch.points, scopes, cut, ids)


def _scope(body: bytes) -> Scope:
    """Take an encoded ScopeMetrics apart: its header is the first field."""
    from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics

    header = ScopeMetrics.FromString(body).scope
    found = {pair.key: pair.value for pair in header.attributes}
    reduction = found[keys.REDUCTION].string_value if keys.REDUCTION in found else None
    metrics = body[len(field(1, header.SerializeToString())) :]
    return Scope(found[keys.AXIS].string_value, reduction, found[keys.SEQ_POINTS].int_value, metrics)


def _cut(spans: bytes, count: int) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """Cut encoded spans where an id stands: a span's own, and that half of its trace's which is made of it."""
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

    every = [span.span_id for scope in ResourceSpans.FromString(spans).scope_spans for span in scope.spans]
    assert len(set(every)) == count
    places = sorted((at, index) for index, own in enumerate(every) for at in _occurrences(spans, own))
    starts = [0, *(at + 8 for at, _ in places)]
    ends = [*(at for at, _ in places), len(spans)]
    cut = tuple(spans[start:end] for start, end in zip(starts, ends, strict=True))
    return cut, tuple(index for _, index in places)


def _occurrences(text: bytes, word: bytes) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


@cache
def resource_of(experiment: str, rank: int, world_size: int) -> bytes:
    """Return the encoded resource of one simulated rank: always the same, as it is born once."""
    place = JobPlace(rank=rank, world_size=world_size, local_rank=rank % 8)
    config = Config.from_env({}, experiment="bench", id=experiment)
    return encode_resource(config, Identity(experiment, f"{rank:032x}", place))


def goodbye(resource: bytes, recorded: int, points: int, seq: int) -> bytes:
    """Return the request in which a rank says that it has finished."""
    said = {keys.STATUS: "finished", keys.RECORDED: recorded, keys.POINTS: points, keys.DROPPED: {}}
    record = LogRecord(keys.EVENT_WRITER_END, None, {**said, keys.OVERHEAD: 0.0, keys.DURATION: 1.0})
    return request_body(resource, [field(2, encode_scope_logs(record, seq))])
