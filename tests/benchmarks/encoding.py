"""From recorded values to bytes on the wire, on the worker's background thread: a point, beside the SDK's encoder."""

from __future__ import annotations

import time
from typing import Any

from tests.benchmarks.child import answer_of
from tests.benchmarks.figures import Found, middle, ratio
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import hot_calls, in_turns

__all__ = ["measure"]

METRICS = 100
TIMERS = 20


def measure(size: Size) -> Found:
    """Measure encoding alone, and the whole collection of a step: take, fold, encode, watermark, spans."""
    found = answer_of(both, pairs=size.pairs, turn_s=size.turn_s)
    return Found(
        {
            "point": middle(found["ours"], "µs"),
            "point.sdk": middle(found["theirs"], "µs", better="neither"),
            "point.ratio": ratio(found["ours"], found["theirs"]),
            "step": middle(found["step"], "µs"),
            "span": middle(found["span"], "µs"),
        }
    )


def both(pairs: int, turn_s: float) -> dict[str, Any]:
    """Return µs a point of ours and of the SDK's, µs of CPU to collect a step, and to encode a span."""
    ours = hot_calls("for _ in encoded_scopes(pending, 0, 'step', next_number): pass", our_names(), turn_s)
    theirs = hot_calls("encode_metrics(data).SerializeToString()", sdk_names(), turn_s)
    mine, others = in_turns(ours, theirs, pairs)
    step, span = whole_steps(pairs)
    return {
        "ours": [taken / METRICS for taken in mine],
        "theirs": [taken / METRICS for taken in others],
        "step": step,
        "span": span,
    }


def our_names() -> dict[str, Any]:
    """Return the folded values of one step, and what encodes them."""
    from otel_ml._internal.messages.encode_metrics import encoded_scopes
    from otel_ml._internal.messages.sequence_number import Sequence
    from otel_ml._internal.record.fold import FOLDER

    record_step(0, timers=0)
    FOLDER.fold()
    [step] = FOLDER.steps
    return {"encoded_scopes": encoded_scopes, "pending": step.pending, "next_number": Sequence().next}


def sdk_names() -> dict[str, Any]:
    """Return the same points as the SDK collects them, and its encoder."""
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("bench")
    for index in range(METRICS):
        meter.create_histogram(f"metric_{index}").record(0.5, {"step": 1, "axis": "step", "rank": 0})
    return {"encode_metrics": encode_metrics, "data": reader.get_metrics_data()}


def whole_steps(pairs: int) -> tuple[list[float], list[float]]:
    """Return µs of CPU to collect a step of `METRICS` and `TIMERS`, and a span of it."""
    from otel_ml._internal.messages.recorder import recorder
    from otel_ml._internal.steps.axes import STEPS
    from otel_ml._internal.timers import spans
    from otel_ml._internal.timers.consumed import settle_consumed

    steps, span = [], []
    for index in range(1, 10 * pairs):
        record_step(index, timers=TIMERS)
        begin = time.thread_time()  # it gives way to training in between
        spans.collect(STEPS.generation, settle_consumed)
        between = time.thread_time()
        recorder.collect(time.time_ns() + 20_000_000)
        end = time.thread_time()
        steps.append((end - begin) * 1e6)
        span.append((between - begin) / TIMERS * 1e6)
    return steps, span


def record_step(index: int, timers: int) -> None:
    from otel_ml._internal.messages.recorder import RecordSettings, recorder
    from otel_ml._internal.record.log import log
    from otel_ml._internal.steps.step import set_step
    from otel_ml._internal.timers.timing import timed

    if not recorder.enabled:
        recorder.configure(RecordSettings())
        recorder.enabled = True
    set_step(index)
    log({f"metric_{number}": 0.5 + number for number in range(METRICS)})
    for _ in range(timers):
        with timed("phase"):
            pass
