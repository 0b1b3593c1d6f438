"""The server of `otel-ml ui` at an address that stays, so that it can be gone and come back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_ml_service.ui.known_runs import KnownRuns
from otel_ml_service.ui.server import server

__all__ = ["TOKEN", "breaking_off", "free_port", "shown"]

TOKEN = "a-token-that-nobody-guesses"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def shown(base: Path, port: int = 0) -> Iterator[str]:
    """Serve the runs of a folder, and yield the address of their list."""
    serving = server(KnownRuns(base), TOKEN, port)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}/{TOKEN}/"
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


@contextmanager
def breaking_off(port: int) -> Iterator[threading.Event]:
    """Answer with the first half of an answer, as a program does that ends while it answers; yield when one was."""
    answered = threading.Event()

    def answer(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
                )
            answered.set()

    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        try:
            yield answered
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()
