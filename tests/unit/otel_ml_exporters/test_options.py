"""What is wrong with an exporter's options, at the edges."""

from __future__ import annotations

import math

import pytest

from otel_ml_exporters.exporter import timeout_problems


@pytest.mark.parametrize("seconds", [0.001, 1, 600])
def test_a_timeout_is_above_0_and_up_to_600_seconds(seconds: float) -> None:
    assert timeout_problems("otlp", seconds) == []


@pytest.mark.parametrize("seconds", [0, -1, 600.1, math.nan, math.inf, True, "5", None])
def test_any_other_timeout_is_refused(seconds: object) -> None:
    expected = f"otlp.timeout: expected seconds above 0 and up to 600, got {seconds!r}."
    assert timeout_problems("otlp", seconds) == [expected]
