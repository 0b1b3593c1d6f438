"""Interned series: every tuple of series keys in use is one `Shape`, however many fragments have it."""

from __future__ import annotations

from otel_ml_service.aggregation.observation import SeriesKey
from otel_ml_service.aggregation.piece import Shape

__all__ = ["Shapes"]

MAX_IDLE = 4096
"""Shapes kept though no window in memory uses them at the moment: between two steps nothing is open."""


class Shapes:
    """Finds shapes by the identity of the tuple first: the receiver interns them, so equal is mostly identical.

    Attributes:
        next: the number of the next new one.
        known: number → shape.
        fresh: those that are new since the last commit.
    """

    def __init__(self) -> None:
        self.next = 0
        self._by_identity: dict[int, Shape] = {}
        self._by_series: dict[tuple[SeriesKey, ...], Shape] = {}
        self.known: dict[int, Shape] = {}
        self.fresh: list[Shape] = []

    def of(self, series: tuple[SeriesKey, ...]) -> Shape:
        """Return the shape of `series`, known or new."""
        shape = self._by_identity.get(id(series))
        if shape is not None and shape.series is series:
            return shape
        shape = self._by_series.get(series)
        if shape is None:
            shape = self.restore(self.next, series)
            self.fresh.append(shape)
        # An equal tuple of another message: it is the one that comes again. An id is one only while its tuple lives,
        # and the shape keeps the newest alive.
        elif id(series) != id(shape.series):
            self._by_identity.pop(id(shape.series), None)
            shape.meet(series)
        self._by_identity[id(series)] = shape
        return shape

    def take_fresh(self) -> list[Shape]:
        """Return those that are new since this was asked last."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def number_from(self, number: int) -> None:
        """Give the next new shape this number."""
        self.next = number

    def restore(self, number: int, series: tuple[SeriesKey, ...]) -> Shape:
        """Add a shape under a known number."""
        self.next = max(self.next, number + 1)
        shape = self._by_series[series] = self.known[number] = Shape(number, series)
        return shape

    def tidy(self) -> list[Shape]:
        """Forget idle shapes where there are too many, and return them."""
        if len(self._by_series) <= MAX_IDLE:
            return []
        idle = [shape for shape in self._by_series.values() if shape.users == 0]
        for shape in idle:
            del self._by_series[shape.series], self.known[shape.number]
            self._by_identity.pop(id(shape.series), None)
        return idle
