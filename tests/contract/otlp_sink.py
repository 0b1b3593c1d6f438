"""An OTLP backend that keeps every request in a file of the run's folder, for readers in other processes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.otlp_server import OtlpServer

__all__ = ["otlp_sink", "received"]

_FILE = "otlp-requests"
_LENGTH = struct.Struct("<I")


class _Requests(list[tuple[str, Mapping[str, str], Any]]):
    """The requests of a server, which are in the file before they are answered."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def append(self, request: tuple[str, Mapping[str, str], Any]) -> None:
        content = request[2].SerializeToString()
        with self._path.open("ab") as file:
            file.write(_LENGTH.pack(len(content)) + content)


@contextmanager
def otlp_sink(run_dir: Path) -> Iterator[str]:
    """Run the backend; yield its base URL."""
    server = OtlpServer()
    server.requests = _Requests(run_dir / _FILE)
    try:
        yield server.url
    finally:
        server.close()


def received(run_dir: Path) -> Iterator[bytes]:
    """Yield the requests in the order of their arrival."""
    path = run_dir / _FILE
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + length
        yield data[at - length : at]
