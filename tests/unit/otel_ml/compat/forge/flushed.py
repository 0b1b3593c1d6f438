"""What a flush has to do with: processes of a mesh, and the points and tables that were recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from otel_ml.compat.forge import (
    MetricAccumulator,
)
from otel_ml.testing import Capture, Point


def the_point(captured: Capture, name: str) -> Point:
    [point] = [point for point in captured.points if point.name == name]
    return point


class Range(MetricAccumulator):
    def reset(self) -> None:
        self.values: list[float] = []

    def append(self, value: Any) -> None:
        self.values.append(float(value))

    def get_value(self) -> float:
        return max(self.values) - min(self.values)

    def get_state(self) -> dict[str, Any]:
        return {"reduction_type": self.name, "low": min(self.values), "high": max(self.values)}

    @classmethod
    def get_reduced_value_from_states(cls, states: Sequence[Any]) -> float:
        return max(state["high"] for state in states) - min(state["low"] for state in states)


class Mesh:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def flush(self, global_step: int, return_state: bool = False) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer
