"""OTLP over HTTP/1.1: the sockets, on one thread with one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import cast

from otel_ml.exceptions import ConfigError
from otel_ml_service.process_limits import most_files
from otel_ml_service.receiver.admission import MAX_REQUEST, RETRY_AFTER_S
from otel_ml_service.receiver.connection_limits import MOST_BYTES, ConnectionLimits, RateLimit
from otel_ml_service.receiver.event_loop import BatchedWakeup, IdleTimer
from otel_ml_service.receiver.http_message import BadRequestError, Head, RequestParser, Response
from otel_ml_service.receiver.refusal_log import WRONG_TOKEN, RefusalLog
from otel_ml_service.receiver.routes import Routes, signal_of
from otel_ml_service.telemetry import Telemetry

__all__ = ["HttpReceiver"]

_log = logging.getLogger(__name__)

_IDLE_S = 300.0
"""A connection without a request; workers send every second, Collectors keep theirs for longer pauses."""

_HEAD_S = 10.0
"""From the first byte of a request, of a new connection from its beginning, to the end of the headers: a sender that is
not known yet has no longer."""

_REQUEST_S = 60.0
"""From the end of the headers to the end of the body; 64 MiB at 10 Mbit/s."""

_LINGER_S = 2.0
"""How long a refused sender may go on sending before the connection is cut.

Closing at once would reset the connection, and the sender would see that instead of the answer.
"""

_MAX_AHEAD = 64 * 1024
"""Bytes of further requests that are read while one is being answered."""

_DRAIN_STEP_S = 0.01

_LINGERING = 16
"""Connections that may wait to be closed with the last files there are; further ones are cut at once."""

_BACKLOG = 1024
"""Connections the kernel may hold for us: all ranks of a job connect in the same second."""


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
        self._thread = threading.Thread(target=self._run, name="otel-ml-http", daemon=True)
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    def start(self) -> tuple[str, int]:
        """Bind, start to serve, and return the address.

        Raises:
            ConfigError: the address cannot be bound.
        """
        self._loop = asyncio.new_event_loop()
        self._wakeup = BatchedWakeup(self._loop)
        try:
            create = self._loop.create_server(
                self._connection,
                self._host,
                self._port,
                ssl=self._tls,
                # Until then the connection counts nowhere.
                ssl_handshake_timeout=None if self._tls is None else _HEAD_S,
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

    def _connection(self) -> _Connection:
        return _Connection(
            self._routes, self._loop, self._wakeup, self._connections, self._intake, self._telemetry, self._refusals
        )

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


class _Connection(asyncio.Protocol):
    """One connection: one request at a time, in order."""

    def __init__(
        self,
        routes: Routes,
        loop: asyncio.AbstractEventLoop,
        wakeup: BatchedWakeup,
        connections: set[_Connection],
        intake: ConnectionLimits,
        telemetry: Telemetry,
        refusals: RefusalLog,
    ) -> None:
        self._routes = routes
        self._refusals = refusals
        self._loop = loop
        self._wakeup = wakeup
        self._connections = connections
        self._intake = intake
        self._telemetry = telemetry
        self._rate_limit = RateLimit()
        self._held = 0
        self._parser = RequestParser(MAX_REQUEST)
        self._head: Head | None = None
        self._lingering = False
        self._answered = False
        self._limit = IdleTimer(loop, self._timed_out)
        self._pause = IdleTimer(loop, self._read_on)
        self._looking: asyncio.Task[None] | None = None  # the loop itself keeps no task alive
        self.is_answering = False
        self._is_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A new file gets the lowest number that is free, so this is how many more fit beside those that are kept back.
        further = most_files() - _fileno(self._transport)
        if further <= -_LINGERING:
            self._telemetry.count("refused", reason="too many connections")
            self._transport.abort()
            return
        if further <= 0 or not self._intake.enter():
            self._telemetry.count("refused", reason="too many connections")
            self._refuse(_busy("The service has as many connections as it takes. Come back later."))
            return
        self._connections.add(self)
        self._limit.set(_HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._connections:
            self._connections.discard(self)
            self._intake.leave()
        self._release()
        self._limit.cancel()
        self._pause.cancel()

    def data_received(self, data: bytes) -> None:
        if self._lingering:  # what a refused sender still sends is read and dropped, so that it comes to the answer
            return
        # The first bytes of a further request: the time for a pause is over, and that for a head begins.
        if self._head is None and not self._parser.buffered and self._answered:
            self._limit.set(_HEAD_S)
        self._parser.feed(data)
        if self.is_answering:
            # What is not read stays with the kernel, which holds the sender up.
            if self._parser.buffered > _MAX_AHEAD:
                self._transport.pause_reading()
            return
        self._proceed()

    def finish(self) -> None:
        """Answer the request that is being answered, if there is one, and close."""
        self._is_last = True
        if not self.is_answering:
            self._transport.close()

    def close(self) -> None:
        self._transport.close()

    def _proceed(self) -> None:
        """Read as far as the bytes go."""
        try:
            if self._head is None:
                self._head = self._parser.head()
                if self._head is None:
                    return
                self._limit.set(_REQUEST_S)
                # Before the body: nobody who is refused has 64 MiB of it kept for a while.
                refusal = self._routes.refusal(self._head)
                if refusal is not None:
                    if refusal.status == 401:
                        peer = self._transport.get_extra_info("peername")  # None where it has gone already
                        self._refusals.tell(peer[0] if peer else "a sender", WRONG_TOKEN)
                    self._refuse(refusal)
                    return
                if self._head.headers.get("expect", "").lower() == "100-continue":
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = self._parser.body()
        except BadRequestError as error:
            self._refuse(self._routes.unreadable(self._head, error))
            return
        # Counted as it arrives: many bodies that never end would take the memory of as many that do.
        if not self._hold(self._parser.buffered if body is None else len(body)):
            self._refuse(self._routes.overloaded(self._head))
        elif body is not None:
            self._serve(self._head, body)

    def _hold(self, size: int) -> bool:
        """Count what this connection's request takes; False where all together take too much."""
        grown, self._held = size - self._held, size
        return self._intake.grow(grown, of=size)

    def _release(self) -> None:
        self._intake.shrink(self._held)
        self._held = 0

    def _serve(self, head: Head, body: bytes) -> None:
        self.is_answering = True
        signal = signal_of(head)
        if signal is None:
            self._looking = self._loop.create_task(self._look(head))
        else:
            self._routes.export(head, signal, body, partial(self._wakeup.put, partial(self._answer, head)))

    async def _look(self, head: Head) -> None:
        try:
            response = await self._routes.look(head)
        except Exception:  # noqa: BLE001 (whatever it is, the sender must get an answer)
            response = _failed(head)
        self._answer(head, lambda: response)

    def _answer(self, head: Head, make: Callable[[], Response]) -> None:
        try:
            response = make()
        except Exception:  # noqa: BLE001 (whatever it is, the sender must get an answer)
            response = _failed(head)
        self.is_answering = False
        self._answered = True
        self._release()
        if self._transport.is_closing():
            return
        keep_alive = head.keep_alive and not self._is_last
        encoded = response.encode(keep_alive=keep_alive)
        self._transport.write(encoded if head.method != "HEAD" else encoded[: len(encoded) - len(response.body)])
        if not keep_alive:
            self._transport.close()
            return
        self._head = None
        wait_s = self._rate_limit.wait(self._loop.time())
        if wait_s:
            self._telemetry.count("slowed")
            self._transport.pause_reading()
            # While nothing is read, no sender can be late.
            self._limit.cancel()
            self._pause.set(wait_s)
        else:
            self._read_on()

    def _read_on(self) -> None:
        """Go on to the next request."""
        self._transport.resume_reading()
        self._limit.set(_HEAD_S if self._parser.buffered else _IDLE_S)
        if self._parser.buffered:
            self._proceed()

    def _refuse(self, response: Response) -> None:
        self._release()
        self._transport.write(response.encode(keep_alive=False))
        self._lingering = True
        # The answer, an end, and no close yet: see `_LINGER_S`.
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):
                self._transport.write_eof()
        self._limit.set(_LINGER_S)

    def _timed_out(self) -> None:
        if self.is_answering:  # the sender waits for us, not we for it
            self._limit.set(_REQUEST_S)
            return
        self._transport.close()


def _failed(head: Head) -> Response:
    """Log what is being handled, and return an answer that is not a permanent one."""
    _log.exception("%s %s could not be answered.", head.method, head.path)
    return Response(503, b"The service failed to answer. Send again later.\n", headers={"retry-after": "1"})


def _busy(text: str) -> Response:
    return Response(503, f"{text}\n".encode(), headers={"retry-after": str(RETRY_AFTER_S)})


def _hold_in_kernel(server: asyncio.Server, connections: int) -> None:
    """Let the kernel hold connections that wait, though asyncio takes one at a time.

    It would take as many as wait before it told us of the first, and use up the files that runs need.
    """
    for listening in server.sockets:
        with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
            same.listen(connections)


def _fileno(transport: asyncio.Transport) -> int:
    """Return the number of a connection's file: a new one has the lowest that was free."""
    found: int = transport.get_extra_info("socket").fileno()
    return found


def cannot_listen(variable: str, host: str, port: int, error: OSError) -> str:
    """Return the sentence for an address that cannot be bound."""
    reason = os.strerror(error.errno) if error.errno else error  # asyncio says the address once more
    return (
        f"Cannot listen on {host}:{port}: {reason}. "
        f"Stop what uses it, or choose another address with {variable}=HOST:PORT (port 0 picks a free one)."
    )
