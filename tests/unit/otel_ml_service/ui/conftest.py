"""The server of `otel-ml ui` over the runs of a folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_ml_service.ui.known_runs import KnownRuns
from otel_ml_service.ui.server import server
from tests.unit.otel_ml_service.ui.client import TOKEN, Client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    serving = server(KnownRuns(tmp_path), TOKEN, 0)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield Client(serving.server_port)
    serving.shutdown()
    thread.join()
    serving.server_close()
