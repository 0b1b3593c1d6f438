from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from otel_ml._internal.http import HttpTransport
from otel_ml.config import Endpoint
from otel_ml.wire.spool import request_body
from tests.otlp_server import OtlpServer, Reply, otlp_server

BODY = request_body(b"", [])


@pytest.fixture
def server() -> Iterator[OtlpServer]:
    with otlp_server() as running:
        yield running


def test_requests_share_one_connection(server: OtlpServer) -> None:
    transport = HttpTransport(Endpoint(url=server.url))

    answers = [transport.post("/v1/metrics", BODY, 5) for _ in range(3)]

    assert [answer.outcome for answer in answers] == ["ok", "ok", "ok"]
    assert server.connections == 1
    transport.close()


def test_headers_of_the_endpoint_are_sent(server: OtlpServer) -> None:
    transport = HttpTransport(Endpoint(url=server.url, headers={"authorization": "Bearer x"}))

    transport.post("/v1/metrics", BODY, 5)

    _, headers, _ = server.requests[0]
    assert headers["authorization"] == "Bearer x"
    assert headers["content-type"] == "application/x-protobuf"
    assert "content-encoding" not in headers
    transport.close()


def test_gzip_where_asked_for(server: OtlpServer) -> None:
    transport = HttpTransport(Endpoint(url=server.url, compression="gzip"))

    answer = transport.post("/v1/metrics", BODY, 5)

    assert answer.outcome == "ok"
    assert server.requests[0][1]["content-encoding"] == "gzip"
    transport.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_overload_is_retried_after_what_the_receiver_asks(server: OtlpServer, status: int) -> None:
    server.replies.append(Reply(status, {"retry-after": "7"}))
    transport = HttpTransport(Endpoint(url=server.url))

    answer = transport.post("/v1/metrics", BODY, 5)

    assert (answer.outcome, answer.retry_after) == ("retry", 7.0)
    transport.close()


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_are_not_taken_may_be_put_right(server: OtlpServer, status: int) -> None:
    server.replies.append(Reply(status, body=b"The bearer token is wrong."))
    transport = HttpTransport(Endpoint(url=server.url))

    answer = transport.post("/v1/metrics", BODY, 5)

    assert (answer.outcome, answer.is_denied) == ("retry", True)
    assert answer.reason == f"HTTP {status}: The bearer token is wrong."
    transport.close()


@pytest.mark.parametrize("status", [400, 404, 413, 500])
def test_other_errors_are_final_and_keep_what_the_receiver_said(server: OtlpServer, status: int) -> None:
    server.replies.append(Reply(status, body=b"ml.experiment.id is missing"))
    transport = HttpTransport(Endpoint(url=server.url))

    answer = transport.post("/v1/metrics", BODY, 5)

    assert answer.outcome == "refused"
    assert answer.reason == f"HTTP {status}: ml.experiment.id is missing"
    transport.close()


def test_of_a_status_in_protobuf_the_message_is_said(server: OtlpServer) -> None:
    body = Status(code=16, message="The bearer token is missing.").SerializeToString()
    server.replies.append(Reply(401, {"content-type": "application/x-protobuf"}, body))
    transport = HttpTransport(Endpoint(url=server.url))

    assert transport.post("/v1/metrics", BODY, 5).reason == "HTTP 401: The bearer token is missing."
    transport.close()


def test_partial_success_is_read(server: OtlpServer) -> None:
    partial = ExportMetricsPartialSuccess(rejected_data_points=3, error_message="no ml.experiment.id")
    body = ExportMetricsServiceResponse(partial_success=partial).SerializeToString()
    server.replies.append(Reply(200, {"otel-ml-notices": "2"}, body))
    transport = HttpTransport(Endpoint(url=server.url))

    answer = transport.post("/v1/metrics", BODY, 5)

    assert (answer.outcome, answer.rejected, answer.message) == ("ok", 3, "no ml.experiment.id")
    assert answer.notices == 2
    transport.close()


def test_nobody_listening_is_a_retry() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]

    answer = HttpTransport(Endpoint(url=f"http://127.0.0.1:{port}")).post("/v1/metrics", BODY, 5)

    assert answer.outcome == "retry"
    assert answer.reason.startswith("unreachable")


def test_a_receiver_that_never_answers_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = HttpTransport(Endpoint(url=f"http://127.0.0.1:{silent.getsockname()[1]}"))

        answer = transport.post("/v1/metrics", BODY, 0.2)

    assert (answer.outcome, answer.reason) == ("retry", "unreachable: timed out")


def test_a_kept_connection_that_the_receiver_closed_is_opened_again(server: OtlpServer) -> None:
    server.replies.append(Reply(200, {"connection": "keep-alive"}))
    transport = HttpTransport(Endpoint(url=server.url))
    transport.post("/v1/metrics", BODY, 5)
    assert transport._socket is not None
    transport._socket.shutdown(socket.SHUT_RDWR)

    answer = transport.post("/v1/metrics", BODY, 5)

    assert answer.outcome == "ok"
    transport.close()


def answering(raw: bytes) -> tuple[int, threading.Thread]:
    """Answer one request with exactly `raw`, and close."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(raw)

    thread = threading.Thread(target=run)
    thread.start()
    return listener.getsockname()[1], thread


@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n\n\x00\r\n0\r\n\r\n", "ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nno length, until the end", "ok"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "retry"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ncut", "retry"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n", "retry"),
    ],
)
def test_answers_of_all_forms_are_understood_or_retried(raw: bytes, outcome: str) -> None:
    port, thread = answering(raw)

    transport = HttpTransport(Endpoint(url=f"http://127.0.0.1:{port}"))

    answer = transport.post("/v1/metrics", BODY, 2)

    transport.close()
    thread.join()
    assert answer.outcome == outcome


def test_a_signal_with_its_own_endpoint_goes_there(server: OtlpServer) -> None:
    endpoint = Endpoint(url="http://127.0.0.1:9", signals={"/v1/metrics": f"{server.url}/v1/metrics"})
    transport = HttpTransport(endpoint)

    assert transport.post("/v1/metrics", BODY, 5).outcome == "ok"
    assert transport.post("/v1/logs", BODY, 5).outcome == "retry"
    transport.close()


def test_an_answer_nobody_asked_for_is_not_taken_for_the_next_request() -> None:
    """Proxies send `408 Request Timeout` on a connection that was idle: it must not count as a refusal of data."""
    listener = socket.create_server(("127.0.0.1", 0))
    fine = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    said = threading.Event()

    def serve() -> None:
        first, _ = listener.accept()
        first.recv(65536)
        first.sendall(fine)
        first.sendall(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        said.set()
        second, _ = listener.accept()
        second.recv(65536)
        second.sendall(fine)
        second.recv(1)
        first.close()
        second.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    transport = HttpTransport(Endpoint(url=f"http://127.0.0.1:{listener.getsockname()[1]}"))

    assert transport.post("/v1/metrics", BODY, 5).outcome == "ok"
    assert said.wait(5)
    assert transport.post("/v1/metrics", BODY, 5).outcome == "ok"
    transport.close()
    thread.join(5)
    listener.close()
