"""A service that is killed with SIGKILL at the n-th boundary of a commit, counted over all of its databases."""

from __future__ import annotations

import os
import signal
import sqlite3
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from otel_ml_exporters.config import ServiceConfig
from otel_ml_exporters.service import Service


def serve_until(folder: Path, kill_at: int | None, address: Connection) -> None:
    """Serve; die just before the `kill_at`-th BEGIN or COMMIT is executed."""
    if kill_at is not None:
        die_at(kill_at)
    exporters: dict[str, dict[str, Any]] = {"jsonl": {}, "tensorboard": {}}
    service = Service(ServiceConfig(dir=folder, http=("127.0.0.1", 0), exporters=exporters))
    service.start()
    address.send(int(service.endpoint.rpartition(":")[2]))
    service.wait()


def die_at(number: int) -> None:
    passed = 0
    connect = sqlite3.connect

    def count(statement: str) -> None:
        nonlocal passed
        passed += statement.startswith(("BEGIN", "COMMIT"))
        if passed >= number:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = connected  # type: ignore[assignment]
