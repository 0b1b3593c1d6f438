"""The server of `otel-ml ui` at an address that stays, so that it can be gone and come back.

python -m tests.browser.ui_server FOLDER PORT
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otel_ml_service.ui.known_runs import KnownRuns
from otel_ml_service.ui.server import address_of, server
from tests.e2e.jobs import ROOT, environment

__all__ = ["TOKEN", "breaking_off", "free_port", "shown"]

TOKEN = "a-token-that-nobody-guesses"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def shown(base: Path, port: int = 0) -> Iterator[str]:
    """Serve the runs of a folder, and yield the address of their list; at the end the program is killed."""
    command = [sys.executable, "-m", "tests.browser.ui_server", str(base), str(port)]
    with subprocess.Popen(command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def main(base: Path, port: int) -> None:
    with server(KnownRuns(base), TOKEN, port) as serving:
        print(address_of(serving, TOKEN), flush=True)
        serving.serve_forever()


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


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
