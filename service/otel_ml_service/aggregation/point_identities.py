"""What told points without running numbers apart in version 9 of the state: a digest of each (ADR 0030, ADR 0077)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from otel_ml_service.aggregation.piece import Shape
from otel_ml_service.aggregation.points import SeriesKey
from otel_ml_service.aggregation.recent_identities import SIZE

__all__ = ["PointIdentities", "SeriesOrigin"]

_MOST = 200_000
"""Series remembered; a cache."""

_COORDINATES = Struct("<qQQ")


class SeriesOrigin(NamedTuple):
    """Where a series comes from: the engine's number of its writer, the instrumentation scope, and the axis."""

    writer: int
    scope: str
    axis: str


class PointIdentities:
    """Finds the digests that identify points: that of the series, worked out once, and that of the moment, by XOR.

    Two points collide where two pairs of digests happen to: as improbable as with one digest of everything.
    """

    def __init__(self) -> None:
        self._shapes: dict[tuple[SeriesOrigin, int], npt.NDArray[np.uint8]] = {}
        self._rows = 0

    def of_all(
        self, place: SeriesOrigin, shape: Shape, step: int | None, starts_ns: Sequence[int], times_ns: Sequence[int]
    ) -> list[bytes]:
        """Return the identity of each point.

        Args:
            place: where they come from.
            shape: the series of each.
            step: of all; None where they have none.
            starts_ns: as they were sent; 0 where they were not.
            times_ns: as they were sent.
        """
        moments = list(zip(starts_ns, times_ns, strict=True))
        digests = {moment: _of_moment(step, *moment) for moment in set(moments)}
        # An SDK stamps all points of an export alike: one digest then, which numpy mixes with that of each series.
        joined = b"".join([digests[moment] for moment in moments] if len(digests) > 1 else digests.values())
        mixed = (self._of_shape(place, shape) ^ np.frombuffer(joined, np.uint8).reshape(-1, SIZE)).tobytes()
        return [mixed[start : start + SIZE] for start in range(0, len(mixed), SIZE)]

    def _of_shape(self, place: SeriesOrigin, shape: Shape) -> npt.NDArray[np.uint8]:
        known = self._shapes.get((place, shape.number))
        if known is None:
            self._rows += len(shape.series)
            if self._rows > _MOST:
                self._shapes.clear()
                self._rows = len(shape.series)
            joined = b"".join(_of_series(place, series) for series in shape.series)
            known = self._shapes[place, shape.number] = np.frombuffer(joined, np.uint8).reshape(-1, SIZE)
        return known


def _of_series(place: SeriesOrigin, series: SeriesKey) -> bytes:
    text = repr((*place, *series))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=SIZE).digest()


def _of_moment(step: int | None, start_ns: int, time_ns: int) -> bytes:
    return blake2b(_COORDINATES.pack(-1 if step is None else step, start_ns, time_ns), digest_size=SIZE).digest()
