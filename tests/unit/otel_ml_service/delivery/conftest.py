from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.otel_ml_service.delivery.driver import Driver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    found = Driver(tmp_path)
    yield found
    for pipeline in found.pipelines:
        pipeline.ask_to_stop(0)
        pipeline.join()
