"""Where a signal goes, below the address that is named for all of them."""

from __future__ import annotations

import socket
import threading

from otel_ml._internal.transport.http import HttpTransport
from otel_ml.config import Endpoint

BODY = b"body"


def test_a_query_of_the_endpoint_stays_behind_the_path_of_a_signal() -> None:
    heads: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            heads.append(connection.recv(65_536))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    transport = HttpTransport(Endpoint(url=f"http://127.0.0.1:{listener.getsockname()[1]}/otlp/?tenant=7"))

    assert transport.post("/v1/metrics", BODY, 5).outcome == "ok"
    transport.close()
    thread.join()
    assert heads[0].startswith(b"POST /otlp/v1/metrics?tenant=7 HTTP/1.1\r\n")
