"""Interned series: every tuple of series keys in use is one `Shape`, however many fragments have it."""

from __future__ import annotations

from otel_ml_exporters.aggregation.observation import SeriesKey
from otel_ml_exporters.aggregation.piece import Shape

__all__ = ["Shapes"]

MAX_IDLE = 4096
"""Shapes kept though no unit uses them at the moment: between two steps nothing is open."""


class Shapes:
    """Finds shapes by the identity of the tuple first: the receiver interns them, so equal is mostly identical."""

    def __init__(self) -> None:
        self._next = 0
        self._by_identity: dict[int, Shape] = {}
        self._by_series: dict[tuple[SeriesKey, ...], Shape] = {}
        self.fresh: list[Shape] = []
        self.gone: list[int] = []

    def of(self, series: tuple[SeriesKey, ...]) -> Shape:
        """Return the shape of `series`, known or new."""
        shape = self._by_identity.get(id(series))
        if shape is not None and shape.series is series:
            return shape
        shape = self._by_series.get(series)
        if shape is None:
            shape = self.restore(self._next, series)
            self.fresh.append(shape)
        elif id(series) != id(shape.series):
            self._by_identity.pop(id(shape.series), None)
            shape.series = series
        self._by_identity[id(series)] = shape
        return shape

    def restore(self, number: int, series: tuple[SeriesKey, ...]) -> Shape:
        """Add a shape under a known number."""
        self._next = max(self._next, number + 1)
        shape = self._by_series[series] = Shape(number, series)
        return shape

    def by_number(self) -> dict[int, Shape]:
        """Return all shapes by their number."""
        return {shape.number: shape for shape in self._by_series.values()}

    def tidy(self) -> None:
        """Forget idle shapes where there are too many."""
        if len(self._by_series) <= MAX_IDLE:
            return
        for shape in [shape for shape in self._by_series.values() if shape.users == 0]:
            del self._by_series[shape.series]
            self._by_identity.pop(id(shape.series), None)
            self.gone.append(shape.number)
