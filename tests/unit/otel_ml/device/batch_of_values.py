"""The values of a batch, by name and step."""

from __future__ import annotations

from typing import Any

from tests.unit.otel_ml.record.decoded import points

FIFTY = range(50)


def values(batch: Any) -> dict[str, float]:
    """Return the mean of each name in a batch, in whatever step."""
    return {point.name: point.moments[1] / point.moments[0] for point in points(batch)}


def by_step(batch: Any, name: str) -> dict[int | None, float]:
    return {point.step: point.moments[1] / point.moments[0] for point in points(batch, name)}
