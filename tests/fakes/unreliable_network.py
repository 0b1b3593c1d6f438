"""A network between Collector and service that answers UNAVAILABLE, doubles and delays, as seeded chance has it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import grpc

from tests.ports import free_port


class UnreliableNetwork:
    """Forwards every gRPC call to `target`.

    Args:
        target: `host:port` of the service.
        lost: share of calls that are answered UNAVAILABLE; half of them after the service had taken them.
        doubled: share of calls that are delivered twice.
            Of each 1 / share calls it happens to one, and chance says to which: to the first twenty of a slow
            machine, too.
        delay_s: at most this long a call takes; others overtake it.
    """

    def __init__(
        self, target: str, *, seed: int, lost: float = 0.0, doubled: float = 0.0, delay_s: float = 0.0
    ) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.counts = {"forwarded": 0, "refused": 0, "answer lost": 0, "doubled": 0}
        self._chance = random.Random(seed)
        self._asked = dict.fromkeys(self.counts, 0)
        self._chosen = dict.fromkeys(self.counts, 0)
        self._lost, self._doubled, self._delay_s = lost, doubled, delay_s
        self._lock = threading.Lock()
        self._channel = grpc.insecure_channel(target, options=[("grpc.max_send_message_length", 64 << 20)])
        self._server = grpc.server(
            ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", 64 << 20), ("grpc.so_reuseport", 0)]
        )
        self._server.add_generic_rpc_handlers((_Everything(self._forward),))
        self._server.add_insecure_port(self.address)

    def _forward(self, method: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        call = self._channel.unary_unary(method)
        metadata = tuple((key, value) for key, value in context.invocation_metadata() if key == "authorization")
        with self._lock:
            delay_s = self._chance.uniform(0, self._delay_s)
        time.sleep(delay_s)
        if self._happens("refused", self._lost / 2):
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost on the way there")
        try:
            if self._happens("doubled", self._doubled):
                call(body, metadata=metadata, timeout=30)
            answer: bytes = call(body, metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
        if self._happens("answer lost", self._lost / 2 / (1 - self._lost / 2)):
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost on the way back")
        self._happens("forwarded", 1.0)
        return answer

    def _happens(self, what: str, share: float) -> bool:
        if not share:
            return False
        with self._lock:
            turn = self._asked[what] % round(1 / share)
            if turn == 0:
                self._chosen[what] = self._chance.randrange(round(1 / share))
            happens = turn == self._chosen[what]
            self._asked[what] += 1
            self.counts[what] += happens
        return happens

    def __enter__(self) -> UnreliableNetwork:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.stop(None).wait(5)
        self._channel.close()


class _Everything(grpc.GenericRpcHandler):
    """Takes every method, undecoded."""

    def __init__(self, forward: Callable[[str, bytes, grpc.ServicerContext], bytes]) -> None:
        self._forward = forward

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda body, context: self._forward(details.method, body, context))
