"""What tells a point without a running number from all others: its writer, series, step and times (CONTRACT §4)."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct

from otel_ml_exporters.aggregation.points import SeriesKey

__all__ = ["PointIdentities"]

_MOST = 200_000
"""Series remembered; a cache."""

_COORDINATES = Struct("<qQQ")


class PointIdentities:
    """Finds the bytes that identify a point; those of a series are worked out once."""

    def __init__(self) -> None:
        self._series: dict[tuple[int, str, SeriesKey], bytes] = {}

    def of(self, writer: int, axis: str, series: SeriesKey, step: int | None, start_ns: int, time_ns: int) -> bytes:
        """Return the identity of a point.

        Args:
            writer: the engine's own number of it.
            axis: of the step.
            series: name, attributes and kind.
            step: None where it has none.
            start_ns: as it was sent; 0 where it was not.
            time_ns: as it was sent.
        """
        known = self._series.get((writer, axis, series))
        if known is None:
            if len(self._series) >= _MOST:
                self._series.clear()
            text = repr((writer, axis, tuple(series)))
            known = self._series[writer, axis, series] = blake2b(
                text.encode("utf-8", "surrogatepass"), digest_size=16
            ).digest()
        return known + _COORDINATES.pack(-1 if step is None else step, start_ns, time_ns)
