"""Every test records into memory, and is a process that has said nothing yet."""

from __future__ import annotations

import pytest

from otel_ml.testing import Capture


@pytest.fixture(autouse=True)
def has_said_nothing(monkeypatch: pytest.MonkeyPatch, otel_ml_capture: Capture) -> None:
    monkeypatch.setattr("otel_ml.compat.nemo_rl.say._SAID", set())
