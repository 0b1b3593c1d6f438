import math

import pytest

from otel_ml._internal.devices import stream_buffer
from tests.unit.otel_ml.record.conftest import recorded

__all__ = ["recorded", "unhurried"]


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send no batch because it is old: how fast the test runs must not matter."""
    monkeypatch.setattr(stream_buffer, "_SHORTEST_S", math.inf)  # a batch is never too old
    monkeypatch.setattr(stream_buffer, "_LONGEST_S", math.inf)  # a batch is never too old
