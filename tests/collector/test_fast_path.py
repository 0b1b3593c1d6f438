"""What passed the real Collector is still taken without decoding it: it writes the same messages in another order."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.observation import Fragment, Observation, Spans
from otel_ml_service.aggregation.points import Packed
from otel_ml_service.receiver.decode import Decoder, Signal
from tests.collector.pipeline import Collector
from tests.e2e.jobs import environment, finished
from tests.waiting import eventually

pytestmark = pytest.mark.e2e

STEPS = 40
RANK = f"""
import otel_ml
with otel_ml.init("unread"):
    for step in otel_ml.steps(range({STEPS})):
        with otel_ml.timed("forward"):
            otel_ml.log({{"loss": 1 / (1 + step), "lr": 0.1}})
    otel_ml.flush(60)  # at its end it would wait two seconds for a Collector that is slow
"""


@contextmanager
def sink(bodies: list[tuple[str, bytes]]) -> Iterator[str]:
    """Take OTLP over gRPC as it comes; yield the address."""

    def handler(service: str) -> Any:
        def take(body: bytes, _context: grpc.ServicerContext) -> bytes:
            bodies.append((service, body))
            return b""

        export = {"Export": grpc.unary_unary_rpc_method_handler(take)}
        return grpc.method_handlers_generic_handler(f"opentelemetry.proto.collector.{service}", export)

    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [handler(service) for service in ("metrics.v1.MetricsService", "trace.v1.TraceService", "logs.v1.LogsService")]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


def decoded(bodies: list[tuple[str, bytes]], signal: Signal) -> list[Observation]:
    """Return what the last of three equal rounds gives: by then every form is known."""
    decoder = Decoder()
    messages = [body for service, body in bodies if service.startswith(signal.removesuffix("s"))] * 3
    rounds = [decoder.protobuf(signal, body).observations for body in messages]
    return [one for found in rounds[len(rounds) * 2 // 3 :] for each in found.values() for one in each]


def test_metrics_and_timers_that_passed_the_collector_are_taken_without_decoding_them(tmp_path: Path) -> None:
    bodies: list[tuple[str, bytes]] = []

    def steps() -> set[int | None]:
        return {one.step for one in decoded(bodies, "metrics") if isinstance(one, Fragment)}

    def timers() -> list[Spans]:
        return [one for one in decoded(bodies, "traces") if isinstance(one, Spans)]

    with sink(bodies) as address, Collector(tmp_path, "gateway", OTEL_ML_SERVICE=address) as collector:
        env = environment(OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint, OTEL_ML_DIR=tmp_path)
        finished([sys.executable, "-c", RANK], env, tmp_path)
        eventually(lambda: steps() >= set(range(STEPS)))
        eventually(lambda: sum(len(each.spans) for each in timers()) >= STEPS)

    fragments = [one for one in decoded(bodies, "metrics") if isinstance(one, Fragment) and one.step is not None]
    assert {type(one.partials) for one in fragments} == {Packed}
    assert {type(one.spans) for one in timers()} == {SpanLines}
