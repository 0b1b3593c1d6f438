"""Of the ranks of a large job nearly all are connected and wait: what each of them takes of the service's memory."""

from __future__ import annotations

import gc
import socket
import ssl
import tracemalloc
from contextlib import ExitStack
from pathlib import Path

import pytest

from otel_ml_service.receiver.admission import Admission
from otel_ml_service.receiver.http import HttpReceiver
from otel_ml_service.receiver.http_message import RequestParser
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.receiver.routes import Routes
from otel_ml_service.receiver.tls import ServerCertificate
from otel_ml_service.receiver.tokens import Tokens
from otel_ml_service.telemetry import Telemetry
from tests.certificates import certificates
from tests.otlp_server import eventually
from tests.unit.otel_ml_service.receiver.test_http import BODY, NoRuns, Store

MANY = 250
"""So many that what else this process keeps meanwhile, for other threads, does not count."""
REQUEST = (
    b"POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


@pytest.mark.parametrize(("is_secure", "most"), [(False, 3_000), (True, 30_000)], ids=["plain", "TLS"])
def test_a_connection_that_waits_for_its_next_request_is_small(tmp_path: Path, is_secure: bool, most: int) -> None:
    files = certificates(tmp_path)
    tls = ServerCertificate(files.server, files.server_key, None).context if is_secure else None
    trusted = ssl.create_default_context(cafile=str(files.authority)) if is_secure else None
    receiver, (host, port) = _started(tls)

    with ExitStack() as held:

        def connect() -> socket.socket:
            plain = socket.create_connection((host, port), timeout=60)
            connection = plain if trusted is None else trusted.wrap_socket(plain, server_hostname="127.0.0.1")
            held.enter_context(connection)
            connection.sendall(REQUEST)
            assert connection.recv(2**16).startswith(b"HTTP/1.1 200")
            return connection

        for _ in range(10):
            connect()
        gc.collect()
        tracemalloc.start()
        try:
            others = [connect() for _ in range(MANY)]
            gc.collect()
            taken = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(False, __file__), tracemalloc.Filter(False, socket.__file__, lineno=None)]
            )
        finally:
            tracemalloc.stop()
        assert len(others) == MANY
    eventually(lambda: not receiver._connections)  # a stop does not wait for the end of TLS
    receiver.stop(60.0)

    assert sum(trace.size for trace in taken.traces) / MANY < most


def test_what_a_refused_request_has_brought_leaves_memory_with_the_answer() -> None:
    receiver, address = _started(None)

    with socket.create_connection(address, timeout=60) as connection, socket.create_connection(address) as another:
        head = REQUEST.partition(b"content-length")[0] + b"transfer-encoding: chunked\r\n\r\n"
        connection.sendall(head + b"200000\r\n" + bytes(2**21) + b"\r\nno size\r\n")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 400")
        another.sendall(REQUEST)
        assert another.recv(2**16).startswith(b"HTTP/1.1 200")  # so the receiver is done with the first one
        held = [one for one in gc.get_objects() if isinstance(one, RequestParser) and one.buffered > 2**16]

    receiver.stop(60.0)
    assert held == []


def _started(tls: ssl.SSLContext | None) -> tuple[HttpReceiver, tuple[str, int]]:
    telemetry, store = Telemetry(), Store()
    store.may_store.set()
    admission = Admission(store, telemetry, 2**28)
    routes = Routes(admission, NoRuns(), telemetry, tokens=Tokens(), version="0", any_host=True)
    receiver = HttpReceiver(routes, "127.0.0.1", 0, telemetry, RefusalLog(), tls)
    return receiver, receiver.start()
