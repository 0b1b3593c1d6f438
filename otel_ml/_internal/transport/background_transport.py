"""Waits for a receiver on a thread of its own, so that the spool goes on being written while one hangs or is slow.

A `kill -9` may cost 200 ms of records, also while a request to a stopped service is under way for its ten seconds,
and while hundreds of requests follow one another after an outage.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from otel_ml._internal.single_thread_executor import SingleThreadExecutor
from otel_ml._internal.transport.answer import Answer, Transport

__all__ = ["BackgroundTransport"]

T = TypeVar("T")


class BackgroundTransport:
    """A transport whose caller does something else ten times a second, however long or short the requests are.

    Args:
        transport: does the work, on one thread that is started with the first request; on the caller's where the
            system gives no thread.
        meanwhile: called on the caller's thread every `tick` seconds of waiting; returns whether to go on waiting.
    """

    def __init__(self, transport: Transport, meanwhile: Callable[[], bool], tick: float) -> None:
        self._transport = transport
        self._meanwhile = meanwhile
        self._tick = tick
        # Kept from one call to the next: many short requests in a row must not put the tick off.
        self._next = 0.0
        self._background = SingleThreadExecutor()

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        given_up = Answer("retry", "no answer before the process ended", timed_out=True)
        return self._wait_for(lambda: self._transport.post(path, body, timeout), given_up)

    def get(self, path: str, timeout: float) -> bytes | None:
        return self._wait_for(lambda: self._transport.get(path, timeout), None)

    def close(self) -> None:
        self._background.close()
        self._transport.close()

    def forget(self) -> None:
        self._background.forget()
        self._transport.forget()

    def _wait_for(self, call: Callable[[], T], given_up: T) -> T:
        task = self._background.begin_or_do(call)
        while not task.done.wait(max(0.0, self._next - time.monotonic())):
            self._next = time.monotonic() + self._tick
            if not self._meanwhile():
                # The request goes on on its thread, and nobody hears its answer: what it holds counts as not
                # acknowledged.
                return given_up
        return task.outcome()
