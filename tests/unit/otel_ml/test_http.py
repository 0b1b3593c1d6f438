from __future__ import annotations

import gzip
import json
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from otel_ml._internal.transport.answer import Answer
from otel_ml._internal.transport.http import HttpTransport
from otel_ml.config import Endpoint
from otel_ml.wire.spool_format import request_body
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


def test_what_a_service_says_is_told_whole_and_what_is_cut_says_so(server: OtlpServer) -> None:
    sentence = f"Not stored: '/runs/{'a' * 200}/journal.log' cannot be written to. Choose another OTEL_ML_DIR."
    page = f"<html>{'<p>' * 1000}"
    server.replies += [Reply(503, {}, Status(message=sentence).SerializeToString()), Reply(503, {}, page.encode())]
    transport = HttpTransport(Endpoint(url=server.url))

    told, cut = (transport.post("/v1/metrics", BODY, 5).reason for _ in range(2))

    assert told.endswith(sentence)
    assert cut.endswith("<p><p…")
    assert len(cut) < 600
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

    assert (answer.outcome, answer.obstacle) == ("retry", "receiver-denied")
    assert answer.reason == f"HTTP {status}: The bearer token is wrong."
    transport.close()


@pytest.mark.parametrize("status", [400, 404, 500])
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

    assert (answer.outcome, answer.reason, answer.timed_out) == ("retry", "unreachable: timed out", True)


def test_a_kept_connection_that_the_receiver_closed_is_opened_again(server: OtlpServer) -> None:
    server.replies.append(Reply(200, {"connection": "keep-alive"}))
    transport = HttpTransport(Endpoint(url=server.url))
    transport.post("/v1/metrics", BODY, 5)
    assert transport._socket is not None
    transport._socket._socket.shutdown(socket.SHUT_RDWR)

    answer = transport.post("/v1/metrics", BODY, 5)

    assert answer.outcome == "ok"
    transport.close()


def test_what_the_program_opens_in_place_of_a_connection_that_waits_for_its_answer_is_left_as_it_is() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    here, there = socket.socketpair()
    with listener, here, there, ThreadPoolExecutor(1) as background:
        transport = HttpTransport(Endpoint(url=f"http://127.0.0.1:{listener.getsockname()[1]}"))
        answer = background.submit(transport.post, "/v1/metrics", BODY, 60)
        first, _ = listener.accept()
        first.recv(65536)
        assert transport._socket is not None
        programs = socket.socket(fileno=os.dup2(here.fileno(), transport._socket._descriptor.number))
        there.sendall(b"for the program")
        first.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")  # nobody can read it anymore

        assert answer.result().outcome == "retry"
        assert programs.recv(100) == b"for the program"
        programs.sendall(b"of the program")
        assert there.recv(100) == b"of the program"
        first.close()
        transport.close()
        assert os.fstat(programs.fileno()).st_ino == os.fstat(here.fileno()).st_ino
        programs.close()


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
        (b"HTTP/1.0 200 OK\r\n\r\n\x0a\x00", "ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nno length, until the end", "retry"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "retry"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n\x0a\x05", "retry"),
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


def answer_to(server: OtlpServer, reply: Reply) -> Answer:
    server.replies.append(reply)
    transport = HttpTransport(Endpoint(url=server.url))
    answer = transport.post("/v1/metrics", BODY, 5)
    transport.close()
    return answer


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {"content-type": "text/html"}, b"<!DOCTYPE html><html><body>Please log in</body></html>"),
        Reply(200, {"content-type": "text/html"}, b"\n\0"),  # would decode, too
        Reply(200, {"content-type": "application/json"}, b'{"status": "ok"}'),
        Reply(200, {"content-type": "application/json"}, b"[]"),
        Reply(200, {"content-type": "application/json"}, b"{"),
        Reply(200, {"content-type": "application/json"}, b'{"partialSuccess":{"rejectedDataPoints":1e999}}'),
        Reply(200, {"content-type": "application/json"}, b"[" * 200_000),
        Reply(200, {"content-type": "application/x-protobuf"}, b"<html>"),
        Reply(202, {"content-type": "text/plain"}, b"Accepted, maybe"),
        *(Reply(status) for status in (201, 202, 203, 205, 206, 207, 299)),
        Reply(202, {"content-type": "application/x-protobuf"}, b"\n\0"),
        Reply(200, {}, b"hello"),
        Reply(302, {"location": "https://portal.example/login"}),
        Reply(301, {"location": "https://collector.example/v1/metrics"}, b"moved"),
        Reply(304),
    ],
)
def test_what_is_no_answer_of_otlp_acknowledges_nothing(server: OtlpServer, reply: Reply) -> None:
    answer = answer_to(server, reply)

    assert (answer.outcome, answer.obstacle) == ("retry", "not-otlp")
    assert answer.reason.startswith(f"HTTP {reply.status}")
    assert reply.headers.get("location", "") in answer.reason


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {"content-type": "text/html"}),
        Reply(204),  # Grafana's Loki says so for logs
        Reply(200, {"content-type": "application/x-protobuf"}, b"\n\0"),
        Reply(200, {"content-type": "application/json; charset=utf-8"}, b"{}"),
        Reply(200, {"content-type": "application/json"}, b'{"partialSuccess":{}}'),
        Reply(200, {"content-type": "application/x-protobuf", "content-encoding": "gzip"}, gzip.compress(b"\n\0")),
    ],
)
def test_an_answer_of_otlp_or_an_empty_one_acknowledges(server: OtlpServer, reply: Reply) -> None:
    answer = answer_to(server, reply)

    assert (answer.outcome, answer.rejected, answer.obstacle) == ("ok", 0, None)


@pytest.mark.parametrize("count", [3, "3"])
def test_partial_success_in_json_is_read(server: OtlpServer, count: object) -> None:
    said = {"partialSuccess": {"rejectedDataPoints": count, "errorMessage": "series limit"}}

    answer = answer_to(server, Reply(200, {"content-type": "application/json"}, json.dumps(said).encode()))

    assert (answer.outcome, answer.rejected, answer.message) == ("ok", 3, "series limit")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(413),
        Reply(413, {"content-type": "text/html"}, b"<h1>413 Request Entity Too Large</h1>"),
        Reply(400, {"content-type": "text/plain"}, b"http: request body too large"),
    ],
)
def test_a_request_beyond_the_receivers_limit_may_be_made_smaller(server: OtlpServer, reply: Reply) -> None:
    assert answer_to(server, reply).outcome == "too_large"


@pytest.mark.parametrize("wish", ["nan", "inf", "1e300", "-5", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_no_wish_of_a_receiver_silences_a_job(server: OtlpServer, wish: str) -> None:
    answer = answer_to(server, Reply(503, {"retry-after": wish}))

    assert answer.retry_after is not None
    assert 0 <= answer.retry_after <= 3600


def test_a_port_that_speaks_grpc_is_recognised_at_once() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    transport = HttpTransport(Endpoint(url=f"http://127.0.0.1:{port}"))

    answer = transport.post("/v1/metrics", BODY, 5)

    transport.close()
    server.stop(0).wait()
    assert (answer.outcome, answer.obstacle) == ("retry", "other-protocol")
    assert f"127.0.0.1:{port} speaks gRPC. Set OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in answer.reason


@pytest.mark.parametrize(
    ("raw", "obstacle"),
    [
        (b"\0\0\0\4\0\0\0\0\0", "other-protocol"),  # SETTINGS, and then silence
        (b"\0\0\x12\4\0\0\0\0\0\0\3", "other-protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\nAn HTTP/1.x request was sent to an HTTP/2 only endpoint.", "other-protocol"),
        (b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n", "other-protocol"),
        (b"\x15\3\3\0\2\2\x28", None),  # a TLS alert
        (b"220 smtp.example ESMTP\r\n", None),
    ],
)
def test_what_speaks_otherwise_is_told_apart_by_its_first_bytes(raw: bytes, obstacle: str | None) -> None:
    port, thread = answering(raw)
    transport = HttpTransport(Endpoint(url=f"http://127.0.0.1:{port}"))

    answer = transport.post("/v1/metrics", BODY, 5)

    transport.close()
    thread.join()
    assert (answer.outcome, answer.obstacle) == ("retry", obstacle)
