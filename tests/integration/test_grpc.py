"""OTLP over gRPC: the same verdicts as over HTTP, in gRPC's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from otel_ml.exceptions import ConfigError
from otel_ml_exporters import StepRecord
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.service import Service
from tests.integration.conftest import Bench
from tests.otlp import FakeWriter, third_party_request
from tests.waiting import eventually

EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


@pytest.fixture
def service(bench: Bench, recording: RecordingExporter) -> Service:
    return bench.service({"recording": lambda: recording}, grpc=("127.0.0.1", 0), token="a secret")


@pytest.fixture
def channel(service: Service) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(target(service)) as found:
        yield found


def target(service: Service) -> str:
    assert service.grpc_address is not None
    return "{}:{}".format(*service.grpc_address)


def export(channel: grpc.Channel, body: bytes, token: str = "a secret", **options: Any) -> ExportMetricsServiceResponse:
    call = channel.unary_unary(EXPORT)
    answer = call(body, metadata=[("authorization", f"Bearer {token}")], timeout=30, **options)
    return ExportMetricsServiceResponse.FromString(answer)


def refusal(channel: grpc.Channel, body: bytes, token: str = "a secret", **options: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        export(channel, body, token, **options)
    return caught.value


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_step_arrives(channel: grpc.Channel, recording: RecordingExporter, compression: grpc.Compression) -> None:
    answer = export(channel, FakeWriter().step(1, {"loss": 0.5}).SerializeToString(), compression=compression)

    assert not answer.HasField("partial_success")
    eventually(lambda: [r.values["loss"] for r in recording.records if isinstance(r, StepRecord)] == [0.5])


def test_undecodable_bytes_are_an_invalid_argument(channel: grpc.Channel) -> None:
    error = refusal(channel, b"\xff\xff")

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "not an OTLP metrics request" in error.details()


@pytest.mark.parametrize("token", ["", "wrong"])
def test_without_the_token_the_sender_is_unauthenticated(channel: grpc.Channel, token: str) -> None:
    assert refusal(channel, b"", token).code() is grpc.StatusCode.UNAUTHENTICATED


def test_points_without_an_experiment_are_a_partial_success(channel: grpc.Channel) -> None:
    answer = export(channel, third_party_request([{"name": "a", "value": 1.0}], resource={}).SerializeToString())

    assert answer.partial_success.rejected_data_points == 1
    assert "ml.experiment.id" in answer.partial_success.error_message


def test_more_than_64_mib_is_refused_and_the_limit_is_named(channel: grpc.Channel) -> None:
    error = refusal(channel, bytes(65 * 2**20))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(64 * 2**20) in error.details()


def test_a_compressed_bomb_is_refused(channel: grpc.Channel) -> None:
    error = refusal(channel, bytes(65 * 2**20), compression=grpc.Compression.Gzip)

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in error.details()


def test_what_cannot_be_stored_now_is_unavailable(service: Service, channel: grpc.Channel) -> None:
    service._journal.close()

    error = refusal(channel, FakeWriter().step(1, {"loss": 0.5}).SerializeToString())

    assert error.code() is grpc.StatusCode.UNAVAILABLE


def test_what_cannot_be_stored_now_is_503_over_http(service: Service, bench: Bench) -> None:
    service._journal.close()

    answer = bench.sender(service).send("metrics", FakeWriter().step(1, {"loss": 0.5}))

    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_a_service_that_is_behind_asks_senders_to_come_back(
    service: Service, channel: grpc.Channel, bench: Bench
) -> None:
    service._admission._limit = 10  # as shipped it takes thousands of requests
    service._admission._hold(1)
    body = FakeWriter().step(1, {"loss": 0.5}).SerializeToString()

    error, answer = refusal(channel, body), bench.sender(service).send("metrics", body)

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_a_port_in_use_is_said_with_what_to_do(service: Service, bench: Bench) -> None:
    with pytest.raises(ConfigError, match="OTEL_ML_LISTEN_GRPC"):
        bench.service(grpc=service.grpc_address, dir=bench.folder / "other")


def test_an_ordinary_opentelemetry_program_is_understood(service: Service, recording: RecordingExporter) -> None:
    resource = Resource({"ml.experiment.id": "otel-program", "service.name": "trainer"})
    exporter = OTLPMetricExporter(target(service), insecure=True, headers={"authorization": "Bearer a secret"})
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)
    provider = MeterProvider([reader], resource)
    counter = provider.get_meter("my.library").create_counter("tokens")
    for step in range(3):
        counter.add(5, {"ml.step": step})

    assert provider.force_flush()
    provider.shutdown()
    bench_run = eventually(lambda: next((r for r in service.runs() if r["id"] == "otel-program"), None))

    assert bench_run["status"] == "running"
    eventually(lambda: [r.values for r in recording.records if isinstance(r, StepRecord)][:2] == [{"tokens": 5.0}] * 2)
