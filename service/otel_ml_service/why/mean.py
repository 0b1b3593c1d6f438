"""The mean of values that programs recorded: any doubles, the largest ones too."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["mean"]


def mean(values: Collection[float]) -> float:
    """Return the mean of at least one value; `statistics.fmean` raises where the sum of all is not a double.

    Examples:
        >>> mean([1.0, 2.0]), mean([1.7e308, 1.7e308])
        (1.5, 1.7e+308)
    """
    return sum(value / len(values) for value in values)
