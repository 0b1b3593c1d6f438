"""Samples of gauges at steps, to recognise those that say nothing new.

A cumulative SDK sends the last value of each step again with every export, as if it had been sampled then
(opentelemetry-python, `_LastValueAggregation.collect`). In an open step each is a sample; in a closed one, no news.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_exporters.aggregation.identities import Place
from otel_ml_exporters.aggregation.piece import Shape

__all__ = ["Samples"]

_MOST = 200_000
"""Values remembered; the oldest go first, and count once more when they are sent again."""


class _Newest(NamedTuple):
    time_ns: int
    values: npt.NDArray[np.float64]


class Samples:
    """Remembers the newest values of each step; a cache, which a restart of the service empties."""

    def __init__(self) -> None:
        self._newest: dict[tuple[Place, int, int], _Newest] = {}
        self._count = 0

    def repeated(
        self, place: Place, shape: Shape, step: int, time_ns: int, values: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Return which values are those that were sent last of these series at this step, and remember them.

        Args:
            place: where they come from.
            shape: their series.
            step: of all.
            time_ns: when they were sampled.
            values: one of each series.
        """
        key = (place, shape.number, step)
        before = self._newest.pop(key, None)
        if before is None:
            self._count += len(values)
            self._make_room()
        newest = before if before is not None and before.time_ns > time_ns else _Newest(time_ns, values.copy())
        self._newest[key] = newest
        return np.zeros(len(values), bool) if before is None else before.values == values

    def _make_room(self) -> None:
        while self._count > _MOST and self._newest:
            oldest = self._newest.pop(next(iter(self._newest)))
            self._count -= len(oldest.values)
