"""A TCP proxy between two programs that cuts, delays, truncates, repeats, reorders, or answers on its own."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from typing import Literal

Mode = Literal["pass", "cut", "delay", "truncate", "repeat", "reorder", "refuse", "swallow"]
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"
TAKEN = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n"


class Proxy:
    """Listens on a free loopback port; `mode` may change at any moment.

    `repeat` sends what a client sent a second time on a connection of its own, as a proxy does whose upstream hangs;
    that one's answers reach nobody. `reorder` hangs up on the client and sends what it had said seconds later: by then
    the client has sent the same again, and newer. `swallow` acknowledges and passes nothing on, as a Collector does
    whose next hop refuses its token.
    """

    def __init__(self, port: int, seed: int) -> None:
        self.mode: Mode = "pass"
        self._target = ("127.0.0.1", port)
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target, timeout=60) as service:
            threading.Thread(target=self._answers, args=(service, client), daemon=True).start()
            said = bytearray()
            while part := client.recv(65536):
                said += part
                if not self._pass_on(part, bytes(said), client, service):
                    return

    def _pass_on(self, part: bytes, said: bytes, client: socket.socket, service: socket.socket) -> bool:
        mode = self.mode
        if mode == "refuse":
            client.sendall(BUSY)
            return False
        if mode == "cut":
            return False
        if mode == "swallow":
            _rest(client)
            client.sendall(TAKEN)
            return False
        if mode == "reorder":
            late = said + _rest(client)
            threading.Thread(target=self._again, args=(late, self._random.uniform(0.5, 4.0)), daemon=True).start()
            return False
        if mode == "truncate":
            service.sendall(part[: self._random.randrange(len(part))])
            return False
        if mode == "delay":
            time.sleep(self._random.uniform(0.05, 1.5))
        if mode == "repeat":
            threading.Thread(target=self._again, args=(said, 0.0), daemon=True).start()
        service.sendall(part)
        return True

    def _again(self, said: bytes, delay_s: float) -> None:
        time.sleep(delay_s)
        with contextlib.suppress(OSError), socket.create_connection(self._target, timeout=5) as service:
            service.sendall(said)
            service.shutdown(socket.SHUT_WR)
            while service.recv(65536):
                pass

    def _answers(self, service: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := service.recv(65536):
                if self.mode == "cut":
                    break
                client.sendall(part)
            client.shutdown(socket.SHUT_RDWR)


def _rest(client: socket.socket) -> bytes:
    """Return what the client is still about to say of its request."""
    client.settimeout(0.05)
    said = bytearray()
    with contextlib.suppress(OSError):
        while part := client.recv(65536):
            said += part
    return bytes(said)
