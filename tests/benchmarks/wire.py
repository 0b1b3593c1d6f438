"""Bytes on the wire a rank and step: the requests that the worker's own code makes, with its own gzip."""

from __future__ import annotations

import itertools
import time
import zlib
from typing import Any

from tests.benchmarks.child import answer_of
from tests.benchmarks.figures import Figure, Found
from tests.benchmarks.sizes import Size

__all__ = ["measure"]

METRICS, TIMERS = 100, 20
STEPS = 100


def measure(size: Size) -> Found:
    """Measure at 20 steps a request and at one; the content of a request does not depend on the size."""
    del size
    figures = {}
    for per_request in (20, 1):
        bytes_of = answer_of(bytes_a_step, per_request=per_request)
        figures[f"{per_request}.gzip"] = Figure(bytes_of["gzip"], "B", note="gzip level 1, as the worker sends it")
        figures[f"{per_request}.gzip6"] = Figure(bytes_of["gzip6"], "B", better="neither", note="gzip level 6")
        figures[f"{per_request}.plain"] = Figure(bytes_of["plain"], "B", note="not compressed, as on loopback")
    return Found(figures)


def bytes_a_step(per_request: int) -> dict[str, float]:
    """Record steps with random values 50 ms apart, and return bytes a step, metrics and spans together."""
    import random

    from otel_ml._internal.messages.recorder import RecordSettings, recorder
    from otel_ml._internal.record.log import log
    from otel_ml._internal.steps.step import set_step
    from otel_ml._internal.timers.timing import timed
    from otel_ml._internal.transport.http import _gzip
    from otel_ml.wire.protobuf import field
    from otel_ml.wire.spool_format import request_body
    from tests.benchmarks.payload import resource_of

    recorder.configure(RecordSettings())
    recorder.enabled = True
    rng = random.Random(0)
    resource = resource_of("01JXAMPLE0000000000000000", 3, 1024)
    sizes = {"gzip": 0, "gzip6": 0, "plain": 0}

    def sent(bodies: Any) -> None:
        body = request_body(resource, [field(2, part) for part in bodies])
        sizes["plain"] += len(body)
        sizes["gzip"] += len(_gzip(body))
        compressor = zlib.compressobj(6, zlib.DEFLATED, 31)
        sizes["gzip6"] += len(compressor.compress(body) + compressor.flush())

    metrics: list[bytes] = []
    spans: list[bytes] = []
    for step in range(STEPS + 1):
        set_step(step)
        log({f"train/metric_{index}": rng.gauss(0, 1) for index in range(METRICS)})
        for index in range(TIMERS):
            with timed(f"phase_{index}"):
                sum(itertools.repeat(1, rng.randrange(100, 1000)))
        batch = recorder.collect(time.time_ns() + 20_000_000)
        metrics += batch.scope_metrics
        spans += batch.scope_spans
        if step % per_request == per_request - 1 and step < STEPS:
            sent(metrics)
            sent(spans)
            metrics, spans = [], []
    return {name: total / STEPS for name, total in sizes.items()}
