"""Requests as our own workers send them, for many ranks and steps, at next to no cost.

A step is recorded and encoded once by the worker's own code. What differs between steps (the step, `ml.seq`, ids of
spans) is then replaced in its bytes: from 2¹⁴ on these numbers have three bytes, so nothing else moves.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from otel_ml._internal.identity import Identity
from otel_ml._internal.isolation import forget_everything
from otel_ml._internal.logrecord import LogRecord, encode_scope_logs
from otel_ml._internal.ranks import Place
from otel_ml._internal.recorder import RecordSettings, recorder
from otel_ml._internal.resource import encode_resource
from otel_ml.config import Config
from otel_ml.wire import attributes as keys
from otel_ml.wire.protobuf import field, key_value
from otel_ml.wire.spool import request_body

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
"""The first step, and the first `ml.seq`; below 2²¹ their encoding is three bytes long."""

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
class StepTemplate:
    """One encoded step.

    Attributes:
        bodies: each a ScopeMetrics with its tag, numbered upwards from `FIRST`; the manifest is the last.
        spans: the ScopeSpans of the step with its tag, cut at every place where a span's id stands.
        ids: which of the step's spans each cut belongs to.
    """

    points: int
    bodies: tuple[bytes, ...]
    spans: tuple[bytes, ...]
    ids: tuple[int, ...]

    def metrics_at(self, step: int, first_seq: int, scopes: int | None = None) -> bytes:
        """Return the step's scopes, or the first `scopes` of them, as those of another step."""
        old, new = key_value(keys.STEP, FIRST), key_value(keys.STEP, step)
        return b"".join(
            body.replace(old, new, 1).replace(key_value(keys.SEQ, FIRST + i), key_value(keys.SEQ, first_seq + i), 1)
            for i, body in enumerate(self.bodies[:scopes])
        )

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
    from otel_ml._internal.log import log
    from otel_ml._internal.step import set_step
    from otel_ml._internal.timing import timed

    forget_everything()
    recorder.configure(RecordSettings(spans_per_step=timers))
    recorder.enabled = True
    recorder.sequence.next = itertools.count(FIRST).__next__
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
    # The position comes after the manifest; a heartbeat needs no load.
    bodies = tuple(field(2, body) for body in batch.scope_metrics if keys.POSITION.encode() not in body)
    spans = b"".join(field(2, body) for body in batch.scope_spans)
    cut, ids = _cut(spans, timers)
    forget_everything()
    return StepTemplate(batch.points, bodies, cut, ids)


def _cut(spans: bytes, count: int) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    """Cut encoded spans where an id stands: a span's own, and that half of its trace's which is made of it."""
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

    [*scopes] = ResourceSpans.FromString(spans).scope_spans
    number = {span.span_id: index for scope in scopes for index, span in enumerate(scope.spans)}
    assert len(number) == count
    cut, ids, position = [], [], 0
    while True:
        found = min(
            (at, own) for own in [*number, b""] if (at := spans.find(own, position) if own else len(spans)) >= 0
        )
        cut.append(spans[position : found[0]])
        if not found[1]:
            return tuple(cut), tuple(ids)
        ids.append(number[found[1]])
        position = found[0] + 8


def resource_of(experiment: str, rank: int, world_size: int) -> bytes:
    """Return the encoded resource of one simulated rank."""
    place = Place(rank=rank, world_size=world_size, local_rank=rank % 8)
    config = Config.from_env({}, experiment="bench", id=experiment)
    return encode_resource(config, Identity(experiment, f"{rank:032x}", place))


def goodbye(resource: bytes, recorded: int, points: int, seq: int) -> bytes:
    """Return the request in which a rank says that it has finished."""
    said = {keys.STATUS: "finished", keys.RECORDED: recorded, keys.POINTS: points, keys.DROPPED: {}}
    record = LogRecord(keys.EVENT_WRITER_END, None, {**said, keys.OVERHEAD: 0.0, keys.DURATION: 1.0})
    return request_body(resource, [field(2, encode_scope_logs(record, seq))])
