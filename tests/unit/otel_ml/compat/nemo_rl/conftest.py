"""Every test records into memory, and is a process that has said nothing yet."""

from __future__ import annotations

import pytest

from otel_ml.testing import Capture
from otel_ml.warn_once import forget_warnings


@pytest.fixture(autouse=True)
def has_said_nothing(otel_ml_capture: Capture) -> None:
    forget_warnings()
