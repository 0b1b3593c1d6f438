"""OTLP over HTTP/1.1: the sockets, on one thread with one event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from functools import partial

from otel_ml.exceptions import ConfigError
from otel_ml_service.receiver.admission import MAX_REQUEST
from otel_ml_service.receiver.connection_limits import MOST_BYTES, ConnectionLimits
from otel_ml_service.receiver.event_loop import BatchedWakeup, TimeLimits, read_tls_by_records
from otel_ml_service.receiver.http_connection import HEAD_S, HttpConnection, Shared
from otel_ml_service.receiver.http_message import Parsers
from otel_ml_service.receiver.refusal_log import RefusalLog
from otel_ml_service.receiver.routes import Routes
from otel_ml_service.telemetry import Telemetry

__all__ = ["HttpReceiver"]

_DRAIN_STEP_S = 0.01

_BACKLOG = 4096
"""Connections the kernel may hold for us, as many as Linux lets it: all ranks of a job connect in the same second."""


class HttpReceiver:
    """Listens on one address.

    Args:
        routes: what to answer.
        host: address to bind.
        port: 0 picks a free one.
        telemetry: counts what is refused or slowed down here.
        refusals: told who is refused for its token or certificate.
        tls: serve https.
        arriving: bytes of requests that may be under way at a time, over all connections.
    """

    def __init__(
        self,
        routes: Routes,
        host: str,
        port: int,
        telemetry: Telemetry,
        refusals: RefusalLog,
        tls: ssl.SSLContext | None = None,
        *,
        arriving: int = MOST_BYTES,
    ) -> None:
        self._routes = routes
        self._telemetry = telemetry
        self._intake = ConnectionLimits(most_bytes=arriving)
        telemetry.count("slowed", 0)  # there from the first scrape on
        self._host = host
        self._port = port
        self._refusals = refusals
        self._tls = tls
        if tls is not None:
            refusals.watch(tls)
            read_tls_by_records()
        self._thread = threading.Thread(target=self._run, name="otel-ml-http", daemon=True)
        self._connections: set[HttpConnection] = set()
        self._server: asyncio.Server | None = None

    def start(self) -> tuple[str, int]:
        """Bind, start to serve, and return the address.

        Raises:
            ConfigError: the address cannot be bound.
        """
        self._loop = asyncio.new_event_loop()
        shared = Shared(
            self._routes,
            self._loop,
            BatchedWakeup(self._loop),
            TimeLimits(self._loop),
            Parsers(MAX_REQUEST),
            self._connections,
            self._intake,
            self._telemetry,
            self._refusals,
        )
        try:
            create = self._loop.create_server(
                partial(HttpConnection, shared),
                self._host,
                self._port,
                ssl=self._tls,
                # Until then the connection counts nowhere.
                ssl_handshake_timeout=None if self._tls is None else HEAD_S,
                # As many as asyncio accepts at once; `_hold_in_kernel` raises what waits in front of it.
                backlog=1,
                reuse_address=True,
            )
            self._server = self._loop.run_until_complete(create)
            _hold_in_kernel(self._server, _BACKLOG)
        except OSError as error:
            self._loop.close()
            raise ConfigError(
                cannot_listen("OTEL_ML_LISTEN_HTTP", self._host, self._port, error), slug="cannot-listen"
            ) from error
        self._thread.start()
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    def stop(self, timeout: float) -> None:
        """Take no new connections, let requests in progress be answered, and close; safe twice."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._drain(timeout), self._loop)
        self._thread.join(timeout + 1.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _drain(self, timeout: float) -> None:
        if self._server is not None:
            self._server.close()
        deadline = self._loop.time() + timeout
        for connection in list(self._connections):
            connection.finish()
        while any(connection.is_answering for connection in self._connections) and self._loop.time() < deadline:
            await asyncio.sleep(_DRAIN_STEP_S)
        for connection in list(self._connections):
            connection.close()
        # One turn of the loop, so that what was written reaches the sockets.
        await asyncio.sleep(0)
        self._loop.stop()


def _hold_in_kernel(server: asyncio.Server, connections: int) -> None:
    """Let the kernel hold connections that wait, though asyncio takes one at a time.

    It would take as many as wait before it told us of the first, and use up the files that runs need.
    """
    for listening in server.sockets:
        with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
            # Of a socket that listens already, Linux takes a further `listen` as its new backlog.
            same.listen(connections)


def cannot_listen(variable: str, host: str, port: int, error: OSError) -> str:
    """Return the sentence for an address that cannot be bound."""
    reason = os.strerror(error.errno) if error.errno else error  # asyncio says the address once more
    return (
        f"Cannot listen on {host}:{port}: {reason}. "
        f"Stop what uses it, or choose another address with {variable}=HOST:PORT (port 0 picks a free one)."
    )
