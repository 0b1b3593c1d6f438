"""Size, depth, number, speed: what one sender, hostile or broken, cannot take from the others."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any

import grpc
import pytest

from otel_ml_service.receiver import grpc as grpc_receiver
from otel_ml_service.receiver import http_connection
from otel_ml_service.receiver.connection_limits import ConnectionLimits, RateLimit
from otel_ml_service.service import Service
from tests.integration.conftest import Bench, Sender
from tests.integration.test_grpc import EXPORT
from tests.otlp import FakeWriter
from tests.waiting import eventually

HEAD = (
    b"POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\n"
    b"content-length: %d\r\n\r\n"
)
STEP = FakeWriter().step(1, {"loss": 0.5})


def connected(service: Service) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(service.endpoint.rpartition(":")[2])), timeout=20)


def read_status(connection: socket.socket) -> int:
    """Read one answer, and not a byte of the next."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, f"closed after {head!r}"
        head += byte
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    while length:
        length -= len(connection.recv(length))
    return int(head.split()[1])


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def open_calls(channel: grpc.Channel, token: str, done: threading.Event, calls: int) -> list[Any]:
    def nothing() -> Iterator[bytes]:
        done.wait(60)
        return
        yield b""

    metadata = (("authorization", f"Bearer {token}"),)
    return [channel.stream_unary(EXPORT).future(nothing(), metadata=metadata, timeout=60) for _ in range(calls)]


# Time: who says nothing, or says it slowly


@pytest.mark.parametrize(
    "beginning",
    [b"", b"POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\n"],
    ids=["nothing", "half a head"],
)
def test_a_connection_that_does_not_get_to_the_end_of_its_first_head_is_closed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    service = bench.service(token="a secret")

    with monkeypatch.context() as quick:  # not for the sender below, which a busy machine may hold up
        quick.setattr(http_connection, "HEAD_S", 0.05)  # as shipped: 10 s
        with closing(connected(service)) as slow:
            slow.sendall(beginning)

            assert is_closed(slow)

    assert bench.sender(service).send("metrics", STEP).status == 200


def test_each_byte_of_a_slow_head_does_not_buy_more_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_S", 0.3)  # as shipped: 10 s
    service = bench.service()

    with closing(connected(service)) as slow:
        slow.settimeout(0.02)
        bytes_taken = next(count for count in range(20_000) if not is_taken(slow, b"G"))

    assert bytes_taken < 20_000  # closed in the middle, whatever it goes on to send


def is_taken(connection: socket.socket, byte: bytes) -> bool:
    try:
        connection.sendall(byte)
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


def test_a_body_that_does_not_come_is_not_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    service = bench.service()

    with monkeypatch.context() as quick:
        quick.setattr(http_connection, "REQUEST_S", 0.05)  # as shipped: a minute
        with closing(connected(service)) as slow:
            slow.sendall(HEAD % 100 + b"a")

            assert is_closed(slow)

    assert bench.sender(service).send("metrics", STEP).status == 200


def test_grpc_calls_without_the_token_hold_no_thread(bench: Bench) -> None:
    service = bench.service(grpc=("127.0.0.1", 0), token="a secret")
    target = "{}:{}".format(*service.grpc_address or ("", 0))
    done = threading.Event()

    # Two connections: on one, calls beyond 64 are reset where the client has not heard of that bound yet.
    of_its_own = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(target, of_its_own) as one, grpc.insecure_channel(target, of_its_own) as another:
        calls = [call for channel in (one, another) for call in open_calls(channel, "wrong", done, 50)]
        codes = {call.exception().code() for call in calls}
        done.set()

    assert codes == {grpc.StatusCode.UNAUTHENTICATED}


def test_grpc_calls_whose_message_does_not_come_leave_room_for_others_and_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_receiver, "MESSAGE_S", 3.0)
    service = bench.service(grpc=("127.0.0.1", 0), token="a secret")
    target = "{}:{}".format(*service.grpc_address or ("", 0))
    done = threading.Event()

    with grpc.insecure_channel(target) as channel:
        calls = open_calls(channel, "a secret", done, 8)
        metadata = (("authorization", "Bearer a secret"),)
        channel.unary_unary(EXPORT)(STEP.SerializeToString(), metadata=metadata, timeout=20)
        codes = {call.exception().code() for call in calls}
        done.set()

    assert codes == {grpc.StatusCode.CANCELLED}


# Number


def test_connections_beyond_the_bound_are_told_to_come_back_and_the_others_go_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = bench.service()
    monkeypatch.setattr(service._http._intake, "_most_connections", 3)  # it follows the limit of open files
    sender = bench.sender(service)
    assert sender.send("metrics", STEP).status == 200

    with ExitStack() as stack:
        held = [stack.enter_context(closing(connected(service))) for _ in range(5)]
        refused = [connection for connection in held[2:] if read_status(connection) == 503]
        assert len(refused) == 3
        assert sender.send("metrics", FakeWriter().step(2, {"loss": 0.5})).status == 200
        metrics = sender.request("GET", "/metrics").body  # further ones below may be refused, too, until these are gone

    assert b'otel_ml_refused_total{reason="too many connections"} 3' in metrics
    eventually(lambda: bench.sender(service).request("GET", "/healthz").status == 200)


def test_bodies_of_all_connections_together_are_bounded_and_small_ones_always_pass(bench: Bench) -> None:
    service = bench.service()
    service._http._intake._most_bytes = 3 * 2**20  # as shipped: hundreds of megabytes

    with closing(connected(service)) as one, closing(connected(service)) as other:
        one.sendall(HEAD % 9_000_000 + bytes(2 * 2**20))
        eventually(lambda: service._http._intake.held >= 2 * 2**20)
        other.sendall(HEAD % 9_000_000 + bytes(2 * 2**20))
        assert read_status(other) == 503
        assert bench.sender(service).send("metrics", STEP).status == 200

    eventually(lambda: service._http._intake.held == 0)


def test_intake_counts_what_is_held_and_given_back() -> None:
    intake = ConnectionLimits(most_connections=1, most_bytes=10 * 2**20)

    assert [intake.enter(), intake.enter()] == [True, False]
    intake.leave()
    assert intake.enter()
    assert [intake.grow(8 * 2**20, of=8 * 2**20), intake.grow(4 * 2**20, of=4 * 2**20)] == [True, False]
    assert intake.grow(100, of=100)  # small ones always
    intake.shrink(8 * 2**20 + 4 * 2**20 + 100)
    assert intake.held == 0


def test_a_connection_that_asks_faster_than_allowed_is_slowed_down_and_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "RateLimit", partial(RateLimit, 20))
    service = bench.service()

    with closing(connected(service)) as quick:
        quick.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 40)
        statuses = {read_status(quick) for _ in range(40)}

    assert statuses == {200}
    assert b"otel_ml_slowed_total" in bench.sender(service).request("GET", "/metrics").body


# Depth


@pytest.mark.parametrize("depth", [200, 100_000])
def test_nesting_beyond_measure_is_refused_and_the_service_goes_on(bench: Bench, depth: int) -> None:
    sender = bench.sender(bench.service())
    deep = b'{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":'
    deep += b'{"arrayValue":{"values":[' * depth + b"]}}" * depth + b"}]}}]}"

    answer = sender.request("POST", "/v1/logs", deep, {"content-type": "application/json"})

    assert answer.status == 400
    assert sender.send("metrics", STEP).status == 200


def test_nesting_in_protobuf_is_refused_and_the_service_goes_on(bench: Bench) -> None:
    sender = bench.sender(bench.service())
    body = b""
    for _ in range(500):  # AnyValue { kvlist_value { values { value
        body = _field(6, _field(1, _field(2, body)))

    answer = sender.send("metrics", _field(1, _field(1, _field(1, _field(2, body)))))

    assert answer.status == 400
    assert sender.send("metrics", STEP).status == 200


def _field(number: int, payload: bytes) -> bytes:
    from otel_ml.wire.protobuf import field

    return field(number, payload)


# Compression


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "GZIP"])
@pytest.mark.parametrize("layers", [1, 2])
def test_bombs_and_bombs_inside_bombs_are_refused_and_the_service_goes_on(
    bench: Bench, encoding: str, layers: int
) -> None:
    service = bench.service()
    sender = bench.sender(service)
    compress = zlib.compress if encoding == "deflate" else gzip.compress
    bomb = bytes(80 * 2**20)
    for _ in range(layers):
        bomb = compress(bomb, 9)

    answer = sender.send("metrics", bomb, {"content-encoding": encoding})

    assert answer.status == (413 if layers == 1 else 400)
    assert sender.send("metrics", STEP).status == 200


def test_several_encodings_at_once_are_refused(bench: Bench) -> None:
    sender = bench.sender(bench.service())

    answer = sender.send("metrics", gzip.compress(gzip.compress(b"")), {"content-encoding": "gzip, gzip"})

    assert answer.status == 415


# What an answer, a log and a counter keep of a hostile request


def test_no_answer_is_a_copy_of_what_was_sent(bench: Bench) -> None:
    sender = bench.sender(bench.service())
    writers = [FakeWriter(extra={"ml.rank": f"{n}" + "x" * 100_000}) for n in range(100)]
    request = writers[0].step(1, {"a": 1.0})
    for writer in writers[1:]:
        request.MergeFrom(writer.step(1, {"a": 1.0}))

    answer = sender.send("metrics", request)

    assert answer.status == 200
    assert 0 < len(answer.body) < 10_000
    assert len(sender.request("GET", "/metrics").body) < 100_000


def test_reasons_that_never_repeat_do_not_fill_the_counters(bench: Bench) -> None:
    sender = bench.sender(bench.service())
    for n in range(300):
        assert sender.send("metrics", FakeWriter(extra={"ml.rank": f"not {n}"}).step(1, {"a": 1.0})).status == 200

    lines = [
        line for line in sender.request("GET", "/metrics").body.decode().splitlines() if "_rejected_total{" in line
    ]

    assert len(lines) <= 101
    assert sum(float(line.rpartition(" ")[2]) for line in lines) == 600
    assert any('reason="other"' in line for line in lines)


@pytest.mark.parametrize(
    ("resource", "name"),
    [({"ml.experiment.id": "x" * 100_000}, "a"), ({"service.name": "x" * 100_000}, "a"), ({}, "a" * 100_000)],
    ids=["experiment", "role", "metric"],
)
def test_names_longer_than_any_name_are_rejected_with_the_limit(
    bench: Bench, resource: dict[str, str], name: str
) -> None:
    sender = bench.sender(bench.service())

    answer = sender.send("metrics", FakeWriter(extra=resource).step(1, {name: 1.0}))

    assert answer.status == 200
    assert b"4096" in answer.body
    assert sender.send("metrics", FakeWriter().step(1, {"b" * 300: 1.0})).body == b""


# A browser is not a sender


def test_a_page_that_points_its_name_at_us_gets_nothing_without_a_token(bench: Bench) -> None:
    service = bench.service()
    sender = bench.sender(service)

    hosts = {"evil.example:4318": 421, "localhost:4318": 200, "127.0.0.1": 200, "[::1]:4318": 200, "host": 421}

    assert {host: sender.request("GET", "/otel_ml/runs", headers={"host": host}).status for host in hosts} == hosts
    assert bench.sender(service).request("OPTIONS", "/v1/metrics").status == 405
    assert json.loads(bench.sender(service).request("GET", "/healthz").body)["service"] == "otel_ml"


def test_with_a_token_any_name_of_the_host_is_answered(bench: Bench) -> None:
    sender = bench.sender(bench.service(token="a secret"))

    assert sender.request("GET", "/healthz", headers={"host": "gateway.example:4318"}).status == 200


# What is refused is counted


@pytest.mark.parametrize(
    ("request_bytes", "status", "reason"),
    [
        (HEAD % (65 * 2**20), 413, "too large"),
        (HEAD.replace(b"content-length: %d", b"transfer-encoding: chunked") + b"4100001\r\n", 413, "too large"),
        (b"POST /v1/metrics HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n", 431, "malformed"),
        (b"no request at all\r\n\r\n", 400, "malformed"),
        (HEAD.replace(b"POST", b"PUT") % 0, 405, "wrong method"),
        (HEAD.replace(b"application/x-protobuf", b"text/plain") % 0, 415, "wrong content type"),
    ],
    ids=["announced", "in chunks", "head", "no request", "method", "content type"],
)
def test_each_request_that_is_refused_is_counted_once_with_its_reason(
    bench: Bench, request_bytes: bytes, status: int, reason: str
) -> None:
    service = bench.service()
    sender = bench.sender(service)

    with closing(connected(service)) as connection:
        connection.sendall(request_bytes)
        if reason == "too large" and b"chunked" in request_bytes:
            with suppress(ConnectionError):
                connection.sendall(bytes(65 * 2**20))
        assert read_status(connection) == status

    assert counted(sender, "refused") == {f'reason="{reason}"': 1}
    assert counted(sender, "requests") == {}


def counted(sender: Sender, name: str) -> dict[str, int]:
    """Return the counter's values in `/metrics`, by label."""
    text = sender.request("GET", "/metrics").body.decode()
    found = re.findall(rf"^otel_ml_{name}_total\{{(.*)\}} (\d+)$", text, re.MULTILINE)
    return {labels: int(value) for labels, value in found if value != "0"}
