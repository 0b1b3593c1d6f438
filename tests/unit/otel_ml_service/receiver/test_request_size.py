"""What a request counts for while it waits for the engine is what it takes in memory, or in the journal."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable
from itertools import islice

import pytest

from otel_ml_service.live_runs.undecided import Undecided
from otel_ml_service.receiver.decode import Decoder, Signal
from tests.benchmarks.sources import SOURCES
from tests.otlp import FakeWriter, third_party_request

Requests = list[tuple[Signal, bytes]]


def load(kind: str, items: int, per_request: int) -> Requests:
    of_spans = {"spans": items} if kind == "spans" else {"metrics": items}
    source = SOURCES[kind]("exp", 8, range(8), per_request=per_request, **of_spans)
    signals: dict[str, Signal] = {"/v1/metrics": "metrics", "/v1/traces": "traces", "/v1/logs": "logs"}
    sent = (
        (signals[path], body)
        for number in range(12)
        for rank in range(8)
        for path, body in source.requests(number, rank)
    )
    return list(islice(sent, 96))


def as_requests(signal: Signal, messages: Iterable[object]) -> Requests:
    return [(signal, message.SerializeToString()) for message in messages]  # type: ignore[attr-defined]


def with_a_unit_that_no_template_has(step: int) -> object:
    request = third_party_request([{"name": f"m{n}", "value": 1.0 * n, "ml.step": step} for n in range(50)])
    for metric in request.resource_metrics[0].scope_metrics[0].metrics:
        metric.unit = "µs"
    return request


def other_kinds() -> dict[str, Requests]:
    writer = FakeWriter()
    table = {"columns": ["prompt", "reward"], "rows": [["a prompt of some length", n / 7] for n in range(400)]}
    return {
        "decoded one by one": as_requests("metrics", map(with_a_unit_that_no_template_has, range(60))),
        "a text": as_requests("logs", (writer.event("ml.text", "word " * 2_000, {"ml.step": n}) for n in range(60))),
        "an image": as_requests("logs", (writer.event("ml.image", bytes(20_000), {"ml.step": n}) for n in range(60))),
        "a table": as_requests("logs", (writer.event("ml.table", table, {"ml.step": n}) for n in range(60))),
        "a span": as_requests("traces", (writer.span(f"forward {n}", n) for n in range(60))),
    }


LOADS = {
    **{f"{kind} {items} × {per}": load(kind, items, per) for kind in SOURCES for items in (100, 3) for per in (20, 1)},
    **other_kinds(),
}


@pytest.mark.parametrize("requests", LOADS.values(), ids=LOADS)
def test_what_waits_counts_for_the_memory_that_it_takes(requests: Requests) -> None:
    decoder = Decoder()
    known, waiting = requests[:24], requests[24:]
    for signal, body in known:
        decoder.protobuf(signal, body)
    gc.collect()
    tracemalloc.start()

    undecided = [Undecided.of(0, decoder.protobuf(signal, body), bytes) for signal, body in waiting]

    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = sum(one.size for one in undecided)
    bodies = sum(len(body) for _, body in waiting)
    assert counted >= bodies
    assert taken <= 1.2 * counted
    assert counted <= max(2 * taken, 1.01 * bodies)
