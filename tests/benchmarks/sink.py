"""A receiver that takes everything and keeps nothing: what a worker costs without what its service costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.jobs import environment

__all__ = ["grpc_sink", "sink"]


@contextmanager
def sink(protocol: str = "http") -> Iterator[str]:
    """Run a sink of OTLP/HTTP, and yield its base URL."""
    command = [sys.executable, "-m", "tests.benchmarks.sink", protocol]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.communicate()


@contextmanager
def grpc_sink() -> Iterator[str]:
    """Run a sink of OTLP/gRPC, and yield its base URL."""
    with sink("grpc") as url:
        yield url


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].partition(b":")[2]) if lengths else 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            break
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
    writer.close()


async def serve_http() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def serve_grpc() -> None:
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    class Everything(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            del call
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Everything()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    serve_grpc() if sys.argv[1] == "grpc" else asyncio.run(serve_http())
