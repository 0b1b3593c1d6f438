"""A time on this machine as it would be on the one where the targets were set, by the same call on both.

Ratios need no scale; sizes, and delays that are mostly waiting, have none.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks.figures import Figure

__all__ = ["REFERENCE_US", "SDK", "scaled"]

SDK = "calls/record.hot.sdk"
"""The SDK's `Histogram.record` with three attributes, hot, in the same run."""

REFERENCE_US = 5.2
"""What it took where the targets were set."""

SLOWER = {"µs", "cores"}
"""Units of which a slower machine shows more."""

FEWER = {"points/s", "spans/s"}
"""Units of which a slower machine shows less."""


def scaled(figure: Figure, figures: Mapping[str, Figure]) -> Figure | None:
    """Return a figure as it would be with an SDK's call of 5.2 µs, without its spread; None where that says nothing."""
    here = figures.get(SDK)
    if figure.value is None or here is None or not here.value or figure.unit not in SLOWER | FEWER:
        return None
    factor = REFERENCE_US / here.value
    return Figure(figure.value * factor if figure.unit in SLOWER else figure.value / factor, figure.unit)
