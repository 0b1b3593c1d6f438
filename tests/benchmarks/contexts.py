"""What it costs that each sample says where it comes from: contexts that are made, and a step that counts them."""

from __future__ import annotations

import time
from typing import Any

import psutil

from tests.benchmarks.child import answer_of, sending_to
from tests.benchmarks.figures import Figure, Found, middle
from tests.benchmarks.sink import sink
from tests.benchmarks.sizes import Size
from tests.benchmarks.turns import hot_calls, in_turns

__all__ = ["measure"]

BATCH = 1_024
MILLION = 1_000_000
PRODUCERS, VERSIONS = 16, 8


def measure(size: Size) -> Found:
    """Measure the calls in a run, and what a step of a million samples, all of them different, leaves."""
    with sink() as url:
        calls = answer_of(in_a_run, env=sending_to(url), pairs=size.pairs, turn_s=size.turn_s)
    step = answer_of(a_million)
    return Found(
        {
            "context": middle(calls["context"], "µs"),
            "consumed": middle(calls["consumed"], "µs"),
            "travels": Figure(calls["bytes"], "B", note="a context as text"),
            "million.caller": Figure(step["caller"], "µs", note="a sample, on the thread that calls"),
            "million.all": Figure(step["all"], "µs", note="a sample, on all threads"),
            "million.memory": Figure(step["memory"], "MB", note="more at the end of the step than before it"),
            "million.wire": Figure(step["wire"], "B", note="of the whole step, not compressed"),
        }
    )


def in_a_run(pairs: int, turn_s: float) -> dict[str, Any]:
    """Return µs of a context in a span of its own, µs a sample of a batch that is consumed, and bytes of a context."""
    import otel_ml

    otel_ml.init("bench")
    otel_ml.set_step(0)
    batch = made(BATCH)
    names = {"timed": otel_ml.timed, "context": otel_ml.context, "consumed": otel_ml.consumed, "batch": batch}
    with_context = hot_calls("with timed('generate'): context(version=3)", names, turn_s)
    without = hot_calls("with timed('generate'): pass", names, turn_s)
    spans, alone = in_turns(with_context, without, pairs, after_ours=lambda: otel_ml.flush(10))
    consume = hot_calls("consumed(batch)", names, turn_s)
    taken = [consume() / BATCH for _ in range(pairs) if otel_ml.flush(10)]
    otel_ml.shutdown()
    return {
        "context": [more - less for more, less in zip(spans, alone, strict=True)],
        "consumed": taken,
        "bytes": len(bytes(batch[0])),
    }


def made(many: int) -> list[Any]:
    """Return contexts that all differ, each of a span of its own."""
    import otel_ml

    contexts = []
    for number in range(many):
        with otel_ml.timed("generate"):
            contexts.append(otel_ml.context(version=number % VERSIONS))
    return contexts


def a_million() -> dict[str, float]:
    """Return what one step of `MILLION` different samples of several producers costs and leaves; no thread but this."""
    from otel_ml._internal.messages.recorder import RecordSettings, recorder
    from otel_ml._internal.steps.step import set_step
    from otel_ml._internal.timers.consumed import consumed, settle_consumed
    from otel_ml.wire.trace_context import half_of_role, span_half, traceparent

    recorder.configure(RecordSettings())
    recorder.enabled = True
    set_step(0)
    half = half_of_role("generator")
    samples = [
        traceparent(half << 64 | number + 1, span_half(half, number % PRODUCERS, number % VERSIONS, number))
        for number in range(MILLION)
    ]
    process = psutil.Process()
    before, begin = process.memory_info().rss, time.thread_time()
    for at in range(0, MILLION, BATCH):
        consumed(samples[at : at + BATCH], version=VERSIONS)
    called = time.thread_time()
    settle_consumed()
    set_step(1)
    batch = recorder.collect(time.time_ns() + 20_000_000)
    end = time.thread_time()
    return {
        "caller": (called - begin) / MILLION * 1e6,
        "all": (end - begin) / MILLION * 1e6,
        "memory": (process.memory_info().rss - before) / 1e6,
        "wire": sum(map(len, [*batch.scope_metrics, *batch.scope_spans])),
    }
