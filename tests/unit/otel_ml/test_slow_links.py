"""A link that takes longer for a request than a receiver is waited for: what it takes is not thrown away."""

from __future__ import annotations

import math
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from otel_ml._internal.transport.answer import Answer, Transport
from otel_ml._internal.transport.grpc import METHODS, GrpcTransport
from otel_ml._internal.transport.http import HttpTransport
from otel_ml.config import Endpoint
from otel_ml.wire.protobuf import field
from otel_ml.wire.spool_format import request_body
from tests.certificates import certificates
from tests.otlp_server import otlp_server

BODY = request_body(b"", [field(15, random.Random(0).randbytes(4 * 2**20))])
"""Of a field that nobody knows; no compression makes it smaller."""

PIECE, PAUSE_S = 64 * 1024, 0.04
"""So BODY takes 2.6 s."""

TIMEOUT_S = 1.0


class SlowLink:
    """Passes on what is sent to a port of its own, so slowly; no more than `most` bytes of it."""

    def __init__(self, receiver: int, most: float) -> None:
        self._receiver, self._most = receiver, most
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE)
        self.port: int = self._listener.getsockname()[1]
        self._opened = [self._listener]
        self._threads: list[threading.Thread] = []
        self._is_over = threading.Event()
        self._begin(self._serve)

    def close(self) -> None:
        self._is_over.set()
        for connection in self._opened:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for connection in self._opened:
            connection.close()

    def _begin(self, work: Callable[..., None], *ends: socket.socket) -> None:
        def end_with_connection() -> None:
            with suppress(OSError):
                work(*ends)

        self._threads.append(threading.Thread(target=end_with_connection))
        self._threads[-1].start()

    def _serve(self) -> None:
        while True:
            sender, _ = self._listener.accept()
            self._opened.append(sender)
            receiver = socket.create_connection(("127.0.0.1", self._receiver))
            self._opened.append(receiver)
            self._begin(self._pass_on, sender, receiver)
            self._begin(self._answer, receiver, sender)

    def _pass_on(self, sender: socket.socket, receiver: socket.socket) -> None:
        passed = 0
        while piece := sender.recv(PIECE):
            receiver.sendall(piece)
            passed += len(piece)
            if self._is_over.wait(PAUSE_S if passed < self._most else None):
                return

    def _answer(self, receiver: socket.socket, sender: socket.socket) -> None:
        while piece := receiver.recv(PIECE):
            sender.sendall(piece)


@contextmanager
def slow_link(receiver: int, *, most: float = math.inf) -> Iterator[int]:
    link = SlowLink(receiver, most)
    try:
        yield link.port
    finally:
        link.close()


def posted(transport: Transport, tries: int = 1) -> list[Answer]:
    answers: list[Answer] = []
    while len(answers) < tries and not (answers and answers[-1].outcome == "ok"):
        answers.append(transport.post("/v1/metrics", BODY, TIMEOUT_S))
    transport.close()
    return answers


def test_a_request_goes_on_while_bytes_of_it_are_taken() -> None:
    with otlp_server() as server, slow_link(server.port) as port:
        began = time.monotonic()
        [answer] = posted(HttpTransport(Endpoint(url=f"http://127.0.0.1:{port}")))
        took = time.monotonic() - began

    assert answer.outcome == "ok", answer
    assert took > 2 * TIMEOUT_S
    assert len(server.requests) == 1


def test_so_does_one_through_tls(tmp_path: Path) -> None:
    files = certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    with otlp_server(tls=context) as server, slow_link(server.port) as port:
        endpoint = Endpoint(url=f"https://127.0.0.1:{port}", certificate=str(files.authority))
        [answer] = posted(HttpTransport(endpoint))

    assert answer.outcome == "ok", answer
    assert len(server.requests) == 1


@pytest.mark.parametrize("taken", [PIECE, len(BODY)], ids=["in-the-middle", "at-the-end"])
def test_a_receiver_that_takes_no_further_byte_is_given_up(taken: int) -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with silent, slow_link(silent.getsockname()[1], most=taken) as port:
        [answer] = posted(HttpTransport(Endpoint(url=f"http://127.0.0.1:{port}")))

    assert (answer.outcome, answer.reason) == ("retry", "unreachable: timed out")


def test_over_grpc_a_request_that_was_given_up_has_more_time_when_it_comes_again() -> None:
    taken: list[int] = []

    def export(body: bytes, _: grpc.ServicerContext) -> bytes:
        taken.append(len(body))
        return b""

    service, method = METHODS["/v1/metrics"].strip("/").split("/")
    server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.max_receive_message_length", 2 * len(BODY))])
    handlers = {method: grpc.unary_unary_rpc_method_handler(export)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with slow_link(port) as slow:
        answers = posted(GrpcTransport(Endpoint(url=f"http://127.0.0.1:{slow}", insecure=True)), tries=6)
    server.stop(None)

    assert [answer.outcome for answer in answers][-2:] == ["retry", "ok"]
    assert taken[-1] == len(BODY)
