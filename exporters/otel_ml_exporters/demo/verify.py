"""Compares what the backends hold, each read with its own library: the last value of every (series, step)."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from otel_ml_exporters.runs.folders import RunFolder
from otel_ml_exporters.runs.history import History, SeriesName

__all__ = ["READERS", "Comparison", "Point", "Stored", "compare", "float32"]

Point = tuple[SeriesName, int]
"""A series and a step of it."""


@dataclass
class Stored:
    """What a backend holds: the last value of every point, and how many values it was given for them."""

    last: dict[Point, float] = field(default_factory=dict)
    values: int = 0

    def add(self, axis: str, name: str, step: int, value: float) -> None:
        """Take one value, in the order in which the backend has them."""
        self.last[SeriesName(axis, name), step] = value
        self.values += 1

    @property
    def extra(self) -> int:
        """Values beyond one a point."""
        return self.values - len(self.last)
