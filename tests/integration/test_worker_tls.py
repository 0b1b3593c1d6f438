"""Encrypted, and with client certificates: the worker against real TLS servers, over HTTP and gRPC."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc

from tests.certificates import Certificates, certificates
from tests.integration.test_worker_grpc import Receiver
from tests.integration.worker_process import environment, run, start
from tests.otlp_server import Point, otlp_server

PROGRAM = """
    import otel_ml
    otel_ml.init("exp")
    otel_ml.log({{"x": 1}}, step=0)
    print(otel_ml.flush({timeout}))
"""
IN_VAIN = PROGRAM.format(timeout=1.0)

Received = Callable[[], list[Point]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def over_http(files: Certificates) -> Iterator[tuple[str, Received]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.authority))
    context.load_cert_chain(files.server, files.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    with otlp_server(tls=context) as server:
        yield server.url, lambda: server.points("x")


@contextmanager
def over_grpc(files: Certificates) -> Iterator[tuple[str, Received]]:
    receiver, server = Receiver(), grpc.server(ThreadPoolExecutor(2))
    receiver.refusals = 0
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(receiver, server)
    pair = (files.server_key.read_bytes(), files.server.read_bytes())
    credentials = grpc.ssl_server_credentials([pair], files.authority.read_bytes(), require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"https://127.0.0.1:{port}", lambda: [point for point in receiver.points if point.name == "x"]
    finally:
        server.stop(0).wait()


SERVERS = {"http/protobuf": over_http, "grpc": over_grpc}


def variables(files: Certificates, url: str, protocol: str) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(files.authority),
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(files.client),
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(files.client_key),
    }


def without(name: str, given: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in given.items() if name not in key}


@pytest.mark.parametrize("protocol", SERVERS)
def test_with_a_client_certificate_everything_arrives_encrypted(
    files: Certificates, protocol: str, tmp_path: Path
) -> None:
    with SERVERS[protocol](files) as (url, received):
        output, _ = run(PROGRAM.format(timeout=30.0), environment(tmp_path, variables(files, url, protocol)), tmp_path)

        assert output == "True\n"
        assert [point.value for point in received()] == [1.0]


@pytest.mark.parametrize("protocol", SERVERS)
@pytest.mark.parametrize("missing", ["_CLIENT_", "_OTLP_CERTIFICATE"])
def test_without_a_certificate_nothing_is_sent_and_what_was_recorded_is_kept(
    files: Certificates, protocol: str, missing: str, tmp_path: Path
) -> None:
    """Without the client's the server refuses us; without the authority's we refuse the server."""
    with SERVERS[protocol](files) as (url, received):
        environ = environment(tmp_path, without(missing, variables(files, url, protocol)))
        output, errors = run(IN_VAIN, environ, tmp_path)

        assert received() == []
    assert output == "False\n"
    assert "1 point of rank 0 is not acknowledged (" in errors
    assert list(tmp_path.glob("run/*/*/spool/*.spool"))


@pytest.mark.parametrize("protocol", SERVERS)
def test_certificates_that_are_exchanged_are_used_by_a_job_that_runs(
    files: Certificates, protocol: str, tmp_path: Path
) -> None:
    expired = certificates(tmp_path)  # of another authority
    program = """
        import otel_ml, sys
        otel_ml.init("exp")
        otel_ml.log({"x": 1}, step=0)
        print(otel_ml.flush(1.0), flush=True)
        sys.stdin.readline()
        print(otel_ml.flush(60.0), flush=True)
    """
    with SERVERS[protocol](files) as (url, received):
        process = start(program, environment(tmp_path, variables(expired, url, protocol)), tmp_path)
        assert process.stdout is not None
        before = process.stdout.readline()
        for old, new in zip(expired, files, strict=True):
            shutil.copy(new, old)
        after, _ = process.communicate("go\n", timeout=100)

        assert (before, after) == ("False\n", "True\n")
        assert [point.value for point in received()] == [1.0]


def test_certificates_that_are_not_there_are_all_named_and_nothing_is_lost(files: Certificates, tmp_path: Path) -> None:
    given = variables(files, "https://127.0.0.1:9", "http/protobuf")
    given |= {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/ca.pem", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/no/key.pem"}

    output, errors = run(IN_VAIN, environment(tmp_path, given), tmp_path)

    assert output == "False\n"
    assert "1 point of rank 0 is not acknowledged (" in errors
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE names no PEM file: there is none at '/no/ca.pem'." in errors
    assert "OTEL_EXPORTER_OTLP_CLIENT_KEY names no PEM file: there is none at '/no/key.pem'." in errors
