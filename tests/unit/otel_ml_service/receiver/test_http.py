from __future__ import annotations

import gzip
import http.client
import socket
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from otel_ml_service.receiver import http_connection
from otel_ml_service.receiver.admission import Admission, Stored
from otel_ml_service.receiver.decode import Decoded
from otel_ml_service.receiver.http import HttpReceiver
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.receiver.routes import Routes
from otel_ml_service.receiver.tokens import Tokens
from otel_ml_service.telemetry import Telemetry
from tests.otlp import FakeWriter
from tests.otlp_server import eventually

BODY = FakeWriter().step(1, {"loss": 1.0}).SerializeToString()
OTLP = {"content-type": "application/x-protobuf"}


class NoRuns:
    is_settled = True

    def runs(self) -> list[Mapping[str, Any]]:
        return []

    def run(self, experiment: str, writer: str | None, *, speaker: str | None) -> None:
        return None

    def console(self, experiment: str, taken: int) -> None:
        return None

    def measures(self) -> list[Any]:
        return []

    def notices(self, experiments: object) -> int:
        return 0


class Store:
    """Stores on a thread of its own, when it is told to."""

    def __init__(self) -> None:
        self.may_store = threading.Event()
        self.waiting = 0
        self.threads: list[str] = []

    def __call__(self, decoded: Decoded, stored: Stored) -> None:
        def work() -> None:
            self.may_store.wait()
            stored(decoded, None)

        self.waiting += 1
        self.threads.append(threading.current_thread().name)
        threading.Thread(target=work).start()


def started(store: Store, runs: NoRuns | None = None) -> tuple[HttpReceiver, tuple[str, int]]:
    telemetry = Telemetry()
    routes = Routes(
        Admission(store, telemetry, 2**28), runs or NoRuns(), telemetry, tokens=Tokens(), version="0", any_host=True
    )
    receiver = HttpReceiver(routes, "127.0.0.1", 0, telemetry, RefusalLog())
    return receiver, receiver.start()


def test_a_receiver_that_stops_answers_what_it_has_and_does_not_wait_for_senders_that_go_on() -> None:
    store = Store()
    store.may_store.set()
    receiver, address = started(store)
    answers: list[list[tuple[int, str | None]]] = [[] for _ in range(8)]

    def send_on_and_on(mine: list[tuple[int, str | None]]) -> None:
        with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
            while not mine or mine[-1][1] != "close":
                try:
                    connection.request("POST", "/v1/metrics", BODY, OTLP)
                    answer = connection.getresponse()
                    answer.read()
                except (OSError, http.client.HTTPException):  # closed between two requests
                    return
                mine.append((answer.status, answer.headers["connection"]))

    senders = [threading.Thread(target=send_on_and_on, args=(mine,)) for mine in answers]
    for sender in senders:
        sender.start()
    eventually(lambda: all(len(mine) > 1 for mine in answers))  # so that each was kept alive once, whatever comes

    stopping = threading.Thread(target=receiver.stop, args=(3600.0,), daemon=True)
    stopping.start()

    eventually(lambda: not stopping.is_alive())
    for sender in senders:
        sender.join(60)
    assert {status for mine in answers for status, _ in mine} == {200}
    assert {kept for mine in answers for _, kept in mine[:-1]} == {"keep-alive"}


def test_what_cannot_be_answered_is_in_the_log_and_its_sender_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    class Defect(NoRuns):
        def runs(self) -> list[Mapping[str, Any]]:
            raise KeyError("a defect of ours")

    receiver, address = started(Store(), Defect())
    with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
        connection.request("GET", "/otel_ml/runs")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    receiver.stop(60.0)

    [said] = [record for record in caplog.records if record.exc_info]
    assert said.getMessage() == "GET /otel_ml/runs could not be answered."
    assert "a defect of ours" in caplog.text


def test_a_request_that_is_being_stored_when_the_receiver_stops_is_answered_and_its_connection_closed() -> None:
    store = Store()
    receiver, address = started(store)
    with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
        connection.request("POST", "/v1/metrics", BODY, OTLP)
        eventually(lambda: store.waiting)

        stopping = threading.Thread(target=receiver.stop, args=(60.0,))
        stopping.start()
        store.may_store.set()

        assert connection.getresponse().status == 200
        stopping.join()
        assert connection.sock is None or connection.sock.recv(1) == b""


def test_a_few_kilobytes_that_unpack_to_megabytes_are_not_decoded_where_everybody_waits_for_them() -> None:
    store = Store()
    store.may_store.set()
    receiver, address = started(store)
    many = FakeWriter().step(1, {f"loss/{number}": float(number) for number in range(20_000)}).SerializeToString()

    with closing(http.client.HTTPConnection(*address)) as connection:
        for body in (many, FakeWriter().step(2, {"loss": 1.0}).SerializeToString()):
            packed = gzip.compress(body, 9)
            assert len(packed) < 256 * 1024
            connection.request("POST", "/v1/metrics", packed, {**OTLP, "content-encoding": "gzip"})
            assert connection.getresponse().read() == b""
    receiver.stop(1.0)

    assert len(many) > 256 * 1024
    assert [name.rpartition("_")[0] or name for name in store.threads] == ["otel-ml-decode", "otel-ml-http"]


def test_the_head_of_a_second_request_has_no_longer_than_that_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, address = started(Store())
    head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with closing(socket.create_connection(address, timeout=60)) as connection:
        connection.sendall(head)
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(http_connection, "HEAD_S", 0.05)  # as shipped: 10 s, where a pause may last five minutes

        connection.sendall(head[:30])

        assert connection.recv(1) == b"", "it is closed"
    receiver.stop(1.0)


def test_a_connection_that_says_nothing_after_an_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "IDLE_S", 0.05)  # as shipped: five minutes
    receiver, address = started(Store())
    with closing(socket.create_connection(address, timeout=60)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200")

        assert connection.recv(1) == b"", "it is closed"
    receiver.stop(1.0)
