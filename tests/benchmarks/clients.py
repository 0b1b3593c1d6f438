"""Many keep-alive connections from one process: HTTP/1.1 with no more than a load needs."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

__all__ = ["Connection", "connect"]


class Connection(asyncio.Protocol):
    """One connection, one request at a time.

    Attributes:
        turned_away: how often the receiver asked to come back later.
    """

    def __init__(self, host: str) -> None:
        self._host = host.encode()
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self.turned_away = 0

    async def post(self, path: str, body: bytes) -> None:
        """Send until it is acknowledged.

        Raises:
            RuntimeError: the receiver will never take it.
        """
        while True:
            head = await self._exchange(path, body)
            status = int(head[9:12])
            if status == 200:
                return
            if status not in {429, 503}:
                raise RuntimeError(f"{path}: {head.decode('latin-1')}")
            self.turned_away += 1
            await asyncio.sleep(0.2)

    async def greet(self) -> None:
        """Be known to the receiver: who connects and says nothing has ten seconds, who has said something minutes."""
        await self._answered(b"GET /healthz HTTP/1.1\r\nhost: %b\r\n\r\n" % self._host)

    async def _exchange(self, path: str, body: bytes) -> bytes:
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/x-protobuf\r\ncontent-length: %d\r\n\r\n"
        return await self._answered(head % (path.encode(), self._host, len(body)) + body)

    async def _answered(self, request: bytes) -> bytes:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)  # at once, as a worker does
        return await self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        if len(rest) >= length:
            self._received = rest[length:]
            self._finish(head, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(b"", exc or ConnectionResetError("The receiver closed the connection."))

    def _finish(self, head: bytes, error: Exception | None) -> None:
        if self._answer is None or self._answer.done():
            return
        if error is None:
            self._answer.set_result(head)
        else:
            self._answer.set_exception(error)


async def connect(endpoint: str) -> Connection:
    """Open a connection."""
    url = urlsplit(endpoint)
    assert url.hostname is not None
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(url.netloc), url.hostname, url.port)
    return connection
