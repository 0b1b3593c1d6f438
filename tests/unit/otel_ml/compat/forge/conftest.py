from __future__ import annotations

from collections.abc import Iterator

import pytest

from otel_ml.compat.forge.collector import COLLECTOR
from otel_ml.testing import Capture, capture
from otel_ml.warn_once import forget_warnings


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[Capture]:
    for name in ("FORGE_DISABLE_METRICS", "FORGE_LOGGING_MODES"):
        monkeypatch.delenv(name, raising=False)
    COLLECTOR.forget()
    forget_warnings()
    with capture(rank=1, world_size=2) as run:
        yield run
    COLLECTOR.forget()
