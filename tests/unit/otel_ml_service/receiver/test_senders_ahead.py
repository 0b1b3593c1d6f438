"""Senders that are ahead of the receiver, or wait for it: what is read of them meanwhile, and what they are told."""

from __future__ import annotations

import gc
import http.client
import socket
import threading
from contextlib import closing

import pytest

from otel_ml_service.receiver import http_connection
from otel_ml_service.receiver.admission import Admission
from otel_ml_service.receiver.http import HttpReceiver
from otel_ml_service.receiver.http_message import RequestParser
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.receiver.routes import Routes
from otel_ml_service.receiver.tokens import Tokens
from otel_ml_service.telemetry import Telemetry
from tests.otlp import FakeWriter
from tests.otlp_server import eventually
from tests.unit.otel_ml_service.receiver.test_http import BODY, NoRuns, Store, started

LARGE = FakeWriter().step(1, {f"{'x' * 4000}{number}": 1.0 for number in range(16)}).SerializeToString()
HEAD = b"POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\ncontent-length: %d\r\n"


def asked(address: tuple[str, int], path: str = "/healthz") -> int:
    with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def test_a_sender_that_does_not_wait_for_answers_is_held_up_and_answered_in_the_end() -> None:
    """Else each connection could fill the service's memory with requests that nobody has looked at."""
    store, many = Store(), 60
    receiver, address = started(store)
    request = HEAD % len(LARGE) + b"\r\n" + LARGE

    with closing(socket.create_connection(address, timeout=60)) as connection:
        sending = threading.Thread(target=connection.sendall, args=(request * many,))
        sending.start()
        eventually(lambda: store.waiting)
        for _ in range(20):
            assert asked(address) == 200  # so long the receiver had time to read on
        ahead = [one.buffered for one in gc.get_objects() if type(one) is RequestParser]
        store.may_store.set()
        answers = b""
        while answers.count(b"HTTP/1.1 200 OK") < many:
            answers += (some := connection.recv(2**16))
            assert some
        sending.join()
    receiver.stop(60.0)

    assert max(ahead) < 2**19
    assert store.waiting == many


def test_who_waits_to_be_asked_for_the_body_is_asked_once() -> None:
    store = Store()
    store.may_store.set()
    receiver, address = started(store)

    with closing(socket.create_connection(address, timeout=60)) as connection:
        for expects in (b"100-Continue", b"nothing"):
            connection.sendall(HEAD % len(BODY) + b"expect: " + expects + b"\r\n\r\n")
            if expects == b"100-Continue":
                assert connection.recv(2**16) == b"HTTP/1.1 100 Continue\r\n\r\n"
            connection.sendall(BODY)
            assert connection.recv(2**16).startswith(b"HTTP/1.1 200 OK\r\n")
    receiver.stop(60.0)


def test_a_request_that_is_stored_for_longer_than_any_sender_may_take_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        http_connection, "REQUEST_S", 0.05
    )  # as shipped: a minute, from the head to the end of the body
    store = Store()
    receiver, address = started(store)

    with (
        closing(socket.create_connection(address, timeout=60)) as waiting,
        closing(socket.create_connection(address, timeout=60)) as slow,
    ):
        waiting.sendall(HEAD % len(BODY) + b"\r\n" + BODY)
        eventually(lambda: store.waiting)
        slow.sendall(HEAD % len(BODY) + b"\r\n" + BODY[:-1])
        assert slow.recv(1) == b"", "it is closed, and the time of the first one was over before"
        store.may_store.set()
        assert waiting.recv(2**16).startswith(b"HTTP/1.1 200")
        waiting.sendall(HEAD % len(BODY) + b"\r\n" + BODY)
        assert waiting.recv(2**16).startswith(b"HTTP/1.1 200")
    receiver.stop(60.0)


def test_a_receiver_has_stopped_when_it_says_so_though_it_waits_for_nobody() -> None:
    receiver, _ = started(Store())

    receiver.stop(0.0)

    assert "otel-ml-http" not in {thread.name for thread in threading.enumerate()}


def test_whose_token_is_wrong_is_in_the_log_by_its_address(caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    routes = Routes(
        Admission(Store(), telemetry, 2**28), NoRuns(), telemetry, tokens=Tokens(["right"]), version="0", any_host=True
    )
    receiver = HttpReceiver(routes, "127.0.0.1", 0, telemetry, RefusalLog())
    address = receiver.start()

    assert asked(address, "/otel_ml/runs") == 401
    receiver.stop(60.0)

    assert [record.getMessage() for record in caplog.records if "127.0.0.1" in record.getMessage()]
