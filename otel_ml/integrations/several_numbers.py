"""Several numbers under one name where a framework's own loggers have one: the score of each class, of each head."""

from __future__ import annotations

from contextlib import suppress
from numbers import Real
from statistics import fmean
from typing import Any

__all__ = ["as_one"]


def as_one(value: Any) -> Any:
    """Return the mean of a list or an array; everything else as it is.

    To `otel_ml.log()` each element is a record, and of several records of one call the last would count.

    Examples:
        >>> as_one([1.0, 3.0]), as_one(0.5), as_one("high")
        (2.0, 0.5, 'high')
    """
    if getattr(value, "ndim", 0):
        with suppress(Exception):  # texts have no mean: said by otel_ml.log()
            # A tensor of whole numbers or truth values has no mean() in torch; an array of NumPy has.
            mean = value.float().mean() if hasattr(value, "detach") else value.mean()
            return value if getattr(mean, "ndim", 0) else mean  # a data frame has one of each column
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, Real) for item in value):
        with suppress(OverflowError):  # a whole number that no float is: said by otel_ml.log()
            return fmean(value)
    return value
