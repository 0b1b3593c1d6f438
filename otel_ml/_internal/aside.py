"""Waits for a receiver on a thread of its own, so that the spool goes on being written while one hangs.

A `kill -9` may cost 200 ms of records, also while a request to a stopped service is under way for its ten seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from otel_ml._internal.answer import Answer, Transport

__all__ = ["AsideTransport"]


class AsideTransport:
    """A transport whose caller does something else at each tick of its waiting.

    Args:
        transport: does the work, on one thread that is started with the first request.
        meanwhile: called on the caller's thread every `tick` seconds until the answer is there.
    """

    def __init__(self, transport: Transport, meanwhile: Callable[[], None], tick: float) -> None:
        self._transport = transport
        self._meanwhile = meanwhile
        self._tick = tick
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        answer: Answer = self._wait_for(lambda: self._transport.post(path, body, timeout))
        return answer

    def get(self, path: str, timeout: float) -> bytes | None:
        content: bytes | None = self._wait_for(lambda: self._transport.get(path, timeout))
        return content

    def close(self) -> None:
        self._calls.put(None)
        self._thread = None
        self._calls = SimpleQueue()
        self._transport.close()

    def forget(self) -> None:
        self._thread = None
        self._calls = SimpleQueue()
        self._transport.forget()

    def _wait_for(self, call: Callable[[], Any]) -> Any:
        if self._thread is None:
            self._thread = threading.Thread(target=_work, args=(self._calls,), name="otel_ml-send", daemon=True)
            self._thread.start()
        done = threading.Event()
        result: list[Any] = []
        failure: list[BaseException] = []

        def work() -> None:
            try:
                result.append(call())
            except BaseException as error:  # noqa: BLE001 (handed to who waits for the answer)
                failure.append(error)
            finally:
                done.set()

        self._calls.put(work)
        while not done.wait(self._tick):
            self._meanwhile()
        if failure:
            raise failure[0]
        return result[0]


def _work(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
