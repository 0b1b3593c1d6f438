"""One connection of OTLP over HTTP/1.1: its requests, its time limits, and what it keeps while it waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

from otel_ml_service.process_limits import most_files
from otel_ml_service.receiver.admission import RETRY_AFTER_S
from otel_ml_service.receiver.connection_limits import TOO_FEW_FILES, TOO_MANY, ConnectionLimits, RateLimit
from otel_ml_service.receiver.event_loop import BatchedWakeup, TimeLimits
from otel_ml_service.receiver.http_message import BadRequestError, Head, Parsers, RequestParser, Response
from otel_ml_service.receiver.refusal_log import WRONG_TOKEN, RefusalLog
from otel_ml_service.receiver.routes import Routes, signal_of
from otel_ml_service.telemetry import Telemetry

__all__ = ["HEAD_S", "HttpConnection", "Shared"]

_log = logging.getLogger(__name__)

IDLE_S = 300.0
"""A connection without a request; workers send every second, Collectors keep theirs for longer pauses."""

HEAD_S = 10.0
"""From the first byte of a request, of a new connection from its beginning, to the end of the headers: a sender that is
not known yet has no longer."""

REQUEST_S = 60.0
"""From the end of the headers to the end of the body; 64 MiB at 10 Mbit/s."""

LINGER_S = 2.0
"""How long a refused sender may go on sending before the connection is cut.

Closing at once would reset the connection, and the sender would see that instead of the answer.
"""

_MAX_AHEAD = 64 * 1024
"""Bytes of further requests that are read while one is being answered."""

_LINGERING = 16
"""Connections that may wait to be closed with the last files there are; further ones are cut at once."""


@dataclass(frozen=True)
class Shared:
    """What all connections of a receiver have in common."""

    routes: Routes
    loop: asyncio.AbstractEventLoop
    wakeup: BatchedWakeup
    limits: TimeLimits
    parsers: Parsers
    connections: set[HttpConnection]
    intake: ConnectionLimits
    telemetry: Telemetry
    refusals: RefusalLog


class HttpConnection(asyncio.Protocol):
    """One connection: one request at a time, in order.

    Of the thousands there are nearly all wait: an idle one has no parser, no timer and no task.
    """

    __slots__ = (
        "_answered", "_head", "_held", "_is_last", "_lingering", "_looking", "_parser", "_pause", "_rate_limit",
        "_shared", "_transport", "due", "is_answering", "turn",
    )  # fmt: skip

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._rate_limit = RateLimit()
        self._held = 0
        self._parser: RequestParser | None = None
        self._head: Head | None = None
        self._lingering = False
        self._answered = False
        self.due = math.inf
        self.turn: int | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None  # the loop itself keeps no task alive
        self.is_answering = False
        self._is_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take it, or say that there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        # A new file gets the lowest number that is free, so this is how many more fit beside those that are kept back.
        further = most_files() - _fileno(self._transport)
        if further <= 0 or not self._shared.intake.enter():
            # `_LINGERING` of the files that are kept back are for connections that stay until they have read why.
            self._turn_away(TOO_FEW_FILES if further <= 0 else TOO_MANY, at_once=further <= -_LINGERING)
            return
        self._shared.connections.add(self)
        self._limit(HEAD_S)

    def _turn_away(self, reason: str, *, at_once: bool) -> None:
        self._shared.telemetry.count("refused", reason="too many connections")
        self._shared.refusals.tell("a sender", reason)
        if at_once:
            self._transport.abort()
        else:
            text = f"Refused: {reason}\n".encode()
            self._refuse(Response(503, text, headers={"retry-after": str(RETRY_AFTER_S)}))

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave nothing behind."""
        # One that was turned away was not counted.
        if self in self._shared.connections:
            self._shared.connections.discard(self)
            self._shared.intake.leave()
        self._release()
        self._shared.limits.cancel(self)
        if self._pause is not None:
            self._pause.cancel()

    def data_received(self, data: bytes) -> None:
        """Read what has come of a request."""
        if self._lingering:  # what a refused sender still sends is read and dropped, so that it comes to the answer
            return
        parser = self._parser
        if parser is None:
            parser = self._parser = self._shared.parsers.lend()
        # The first bytes of a further request: the time for a pause is over, and that for a head begins.
        if self._head is None and self._answered and not parser.buffered:
            self._limit(HEAD_S)
        parser.feed(data)
        if self.is_answering:
            # What is not read stays with the kernel, which holds the sender up.
            if parser.buffered > _MAX_AHEAD:
                self._transport.pause_reading()
            return
        self._proceed(parser)

    def finish(self) -> None:
        """Answer the request that is being answered, if there is one, and close."""
        self._is_last = True
        if not self.is_answering:
            self._transport.close()

    def close(self) -> None:
        """Close it, whatever it waits for."""
        self._transport.close()

    def _proceed(self, parser: RequestParser) -> None:
        """Read as far as the bytes go."""
        try:
            if self._head is None:
                self._head = parser.head()
                if self._head is None:
                    return
                self._limit(REQUEST_S)
                # Before the body: nobody who is refused has 64 MiB of it kept for a while.
                refusal = self._shared.routes.refusal(self._head)
                if refusal is not None:
                    if refusal.status == 401:
                        peer = self._transport.get_extra_info("peername")  # None where it has gone already
                        self._shared.refusals.tell(peer[0] if peer else "a sender", WRONG_TOKEN)
                    self._refuse(refusal)
                    return
                if self._head.headers.get("expect", "").lower() == "100-continue":
                    self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = parser.body()
        except BadRequestError as error:
            self._refuse(self._shared.routes.unreadable(self._head, error))
            return
        # Counted as it arrives: many bodies that never end would take the memory of as many that do.
        if not self._hold(parser.buffered if body is None else len(body)):
            self._refuse(self._shared.routes.overloaded(self._head))
        elif body is not None:
            if self._head.keep_alive and self._shared.parsers.take_back(parser):
                self._parser = None
            self._serve(self._head, body)

    def _hold(self, size: int) -> bool:
        """Count what this connection's request takes; False where all together take too much."""
        grown, self._held = size - self._held, size
        return self._shared.intake.grow(grown, of=size)

    def _release(self) -> None:
        self._shared.intake.shrink(self._held)
        self._held = 0

    def _serve(self, head: Head, body: bytes) -> None:
        self.is_answering = True
        signal = signal_of(head)
        if signal is None:
            self._looking = self._shared.loop.create_task(self._look(head))
        else:
            # Whoever has the answer, on any thread, puts it into the wakeup: `_answer` runs on the loop's thread.
            self._shared.routes.export(
                head, signal, body, partial(self._shared.wakeup.put, partial(self._answer, head))
            )

    async def _look(self, head: Head) -> None:
        try:
            response = await self._shared.routes.look(head)
        except Exception:  # noqa: BLE001 (whatever it is, the sender must get an answer)
            response = _failed(head)
        self._answer(head, lambda: response)

    def _answer(self, head: Head, make: Callable[[], Response]) -> None:
        try:
            response = make()
        except Exception:  # noqa: BLE001 (whatever it is, the sender must get an answer)
            response = _failed(head)
        self.is_answering = False
        self._looking = None
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
        wait_s = self._rate_limit.wait(self._shared.loop.time())
        if wait_s:
            self._shared.telemetry.count("slowed")
            self._transport.pause_reading()
            # While nothing is read, no sender can be late.
            self._shared.limits.cancel(self)
            self._pause = self._shared.loop.call_later(wait_s, self._read_on)
        else:
            self._read_on()

    def _read_on(self) -> None:
        """Go on to the next request."""
        self._pause = None
        self._transport.resume_reading()
        # The next request has come, or begun, while this one was answered.
        if self._parser is not None and self._parser.buffered:
            self._limit(HEAD_S)
            self._proceed(self._parser)
        else:
            self._limit(IDLE_S)

    def _refuse(self, response: Response) -> None:
        self._release()
        # It has read a part of what is refused, so it is not lent to another connection.
        self._parser = None
        self._transport.write(response.encode(keep_alive=False))
        self._lingering = True
        # The answer, an end, and no close yet: see `LINGER_S`.
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):
                self._transport.write_eof()
        self._limit(LINGER_S)

    def _limit(self, seconds: float) -> None:
        self._shared.limits.set(self, seconds)

    def timed_out(self) -> None:
        """End a connection whose sender has said nothing, or not enough, for too long."""
        if not self.is_answering:  # else the sender waits for us, not we for it
            self._transport.close()


def _failed(head: Head) -> Response:
    """Log what is being handled, and return an answer that is not a permanent one."""
    _log.exception("%s %s could not be answered.", head.method, head.path)
    text = b"The service failed to answer. Send again later.\n"
    return Response(503, text, headers={"retry-after": str(RETRY_AFTER_S)})


def _fileno(transport: asyncio.Transport) -> int:
    """Return the number of a connection's file: a new one has the lowest that was free."""
    found: int = transport.get_extra_info("socket").fileno()
    return found
