"""A service that is killed with SIGKILL at the n-th boundary of what it makes durable.

Counted over all databases and files: BEGIN and COMMIT of its own and of MLflow's store, and each write, sync, cut and
rename of the journal's files, `late.otlp`, artifacts, `metrics.jsonl` and event files. A gathered write (the journal's)
is left in its middle.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sqlite3.dbapi2
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from otel_ml_service.config import Limits, ServiceConfig
from otel_ml_service.service import Service

FILES = ("write", "pwrite", "fsync", "fdatasync", "ftruncate", "truncate", "replace", "link", "unlink")


def serve_until(folder: Path, exporters: Sequence[str], kill_at: int | None, address: Connection) -> None:
    """Serve; die just before the `kill_at`-th boundary. Nothing is kept for late data: it goes to `late.otlp`."""
    if kill_at is not None:
        die_at(kill_at)
    named: dict[str, dict[str, Any]] = {name: {} for name in exporters}
    limits = Limits(retained=1, closed=0)
    service = Service(ServiceConfig(dir=folder, http=("127.0.0.1", 0), exporters=named, limits=limits))
    service.start()
    address.send(int(service.endpoint.rpartition(":")[2]))
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.set())
    while not asked.wait(0.1):
        pass
    service.stop(20)


def die_at(number: int) -> None:
    passed = 0
    connect, write = sqlite3.connect, os.write

    def boundary() -> None:
        nonlocal passed
        passed += 1
        if passed >= number:
            os.kill(os.getpid(), signal.SIGKILL)

    def count(statement: str) -> None:
        if statement.startswith(("BEGIN", "COMMIT")):
            boundary()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def before(*arguments: Any, **options: Any) -> Any:
            boundary()
            return call(*arguments, **options)

        return before

    def half_written(handle: int, parts: Sequence[bytes]) -> int:
        whole = b"".join(parts)
        half = write(handle, whole[: len(whole) // 2])
        boundary()
        return half + write(handle, whole[half:])

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = sqlite3.dbapi2.connect = connected  # type: ignore[assignment]
    for name in FILES:
        setattr(os, name, counted(getattr(os, name)))
    os.writev = half_written  # type: ignore[assignment]
