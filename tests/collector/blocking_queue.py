"""What `block_on_overflow` of the installed Collector does where senders give up: the evidence of ADR 0010.

    python -m tests.collector.blocking_queue

Many senders keep a small queue full; each gives its request up after a moment and sends it again, as programs with a
time-out do. Then all stop, and one more request is sent. Prints for `false` and `true` whether that one arrived.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from tests.collector.pipeline import Collector
from tests.ports import free_port

SENDERS, SECONDS = 100, 30.0
QUEUE_BYTES = 40_000
GIVE_UP_S = (0.01, 0.3)
LAST_S = 30.0
EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class Outcome(NamedTuple):
    """What the queue did.

    Attributes:
        taken: requests that were acknowledged.
        given_up: requests that were neither taken nor refused in time.
        last_arrived: whether a request that was sent when everybody else had stopped came to the next hop.
    """

    taken: int
    given_up: int
    last_arrived: bool


class NextHop(grpc.GenericRpcHandler):
    """Takes everything."""

    def __init__(self) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.last_came = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(self.address)

    def service(self, _details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._take)

    def _take(self, body: bytes, _context: grpc.ServicerContext) -> bytes:
        if b"the-last-one" in body:
            self.last_came.set()
        return bytes(ExportMetricsServiceResponse().SerializeToString())

    def __enter__(self) -> NextHop:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.stop(None).wait(5)


class Senders:
    """Keep `SENDERS` requests under way."""

    def __init__(self, address: str) -> None:
        self._chance = random.Random(0)
        self._call = grpc.insecure_channel(address).unary_unary(EXPORT)
        self._free = threading.Semaphore(SENDERS)
        self.taken = self.given_up = 0

    def send_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._free.acquire()
            call = self._call.future(request("load"), timeout=self._chance.uniform(*GIVE_UP_S))
            call.add_done_callback(self._done)

    def send_last(self) -> None:
        """Send one more until it is taken, for as long as somebody would wait."""
        end = time.monotonic() + LAST_S
        while time.monotonic() < end:
            try:
                self._call(request("the-last-one"), timeout=5.0)
            except grpc.RpcError:
                time.sleep(0.2)  # refused: it is sent again, not at once
            else:
                return

    def _done(self, call: Any) -> None:
        self.taken += call.code() == grpc.StatusCode.OK
        self.given_up += call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        self._free.release()


def request(name: str) -> bytes:
    message = ExportMetricsServiceRequest()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name=name)
    for number in range(20):
        metric.gauge.data_points.add(as_double=number, time_unix_nano=number + 1)
    return bytes(message.SerializeToString())


def tried(*, blocks: bool, folder: Path) -> Outcome:
    with NextHop() as hop:
        collector = Collector(folder, "gateway", OTEL_ML_SERVICE=hop.address, OTEL_ML_QUEUE_BYTES=QUEUE_BYTES)
        option = f"exporters::otlp_grpc::sending_queue::block_on_overflow: {str(blocks).lower()}"
        collector.command += ["--config", f"yaml:{option}"]
        with collector:
            senders = Senders(collector.grpc)
            senders.send_for(SECONDS)
            senders.send_last()
            return Outcome(senders.taken, senders.given_up, hop.last_came.wait(LAST_S))


def main() -> None:
    for blocks in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            outcome = tried(blocks=blocks, folder=Path(folder))
        last = "arrived" if outcome.last_arrived else f"did not arrive within {LAST_S:.0f} s: the queue is stuck"
        print(f"block_on_overflow: {str(blocks).lower()}")
        print(f"  {outcome.taken:,} requests taken, {outcome.given_up:,} given up")
        print(f"  one more, when all others had stopped: {last}")


if __name__ == "__main__":
    main()
