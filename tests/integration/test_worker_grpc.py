"""OTLP over gRPC, against a real grpcio server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc

from tests.integration.worker_process import environment, run
from tests.otlp_server import Event, Point, events_of, points_of


class Receiver(metrics_service_pb2_grpc.MetricsServiceServicer, logs_service_pb2_grpc.LogsServiceServicer):
    def __init__(self) -> None:
        self.points: list[Point] = []
        self.events: list[Event] = []
        self.metadata: dict[str, str] = {}
        self.refusals = 1

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 (the name of the RPC)
        self.metadata = dict(context.invocation_metadata())
        if self.refusals:
            self.refusals -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "later")
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            self.points.extend(points_of(request))
            return metrics_service_pb2.ExportMetricsServiceResponse()
        self.events.extend(events_of(request))
        return logs_service_pb2.ExportLogsServiceResponse()


@pytest.fixture
def served() -> Iterator[tuple[Receiver, int]]:
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(2))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield receiver, port
    server.stop(0).wait()


def test_everything_arrives_by_grpc_also_after_unavailable(served: tuple[Receiver, int], tmp_path: Path) -> None:
    receiver, port = served
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_HEADERS": "X-Team=rl",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }
    program = """
        import otel_ml
        otel_ml.init("exp")
        for i in range(10):
            otel_ml.set_step(i); otel_ml.log({"x": i})
    """

    _, errors = run(program, environment(tmp_path, variables), tmp_path)

    assert f"finished. Rank 0 recorded 10 values, acknowledged by http://127.0.0.1:{port}" in errors
    assert sorted(point.value for point in receiver.points if point.name == "x") == [float(i) for i in range(10)]
    assert [event.name for event in receiver.events] == ["ml.writer.end"]
    assert receiver.metadata["x-team"] == "rl"


def test_this_host_is_not_reached_through_a_proxy(served: tuple[Receiver, int], tmp_path: Path) -> None:
    receiver, port = served
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    program = """
        import otel_ml
        with otel_ml.init("exp"):
            otel_ml.log({"x": 1.0}, step=0)
    """

    run(program, environment(tmp_path, variables), tmp_path)

    assert [point.value for point in receiver.points if point.name == "x"] == [1.0]


def test_without_grpcio_it_is_said_what_to_install_and_nothing_is_lost(tmp_path: Path) -> None:
    program = """
        import sys
        sys.modules["grpc"] = None
        import otel_ml
        with otel_ml.init("exp"):
            otel_ml.log({"x": 1.0}, step=0)
    """
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}

    _, errors = run(program, environment(tmp_path, variables), tmp_path)

    assert "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' needs the package grpcio. Run pip install 'otel-ml[grpc]'." in errors
    assert "1 point of rank 0 is not acknowledged" in errors
