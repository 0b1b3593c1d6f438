"""Numbers of tables on a terminal: ages, counts, values."""

from __future__ import annotations

import math

from otel_ml.quantities import quantity
from otel_ml_service.findings.units import unit_of

__all__ = ["age", "compact", "of_metric", "thousands"]


def age(seconds: float) -> str:
    """Return a duration in its largest unit.

    Examples:
        >>> age(30), age(7200), age(200_000)
        ('30 s', '2 h', '2 d')
    """
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def thousands(count: int) -> str:
    """Return a whole number with separators.

    Examples:
        >>> thousands(48210)
        '48,210'
    """
    return f"{count:,}"


def of_metric(name: str, value: float) -> str:
    """Return a value of a metric: in the unit that fits where that is known, as of what otel_ml itself measures.

    Examples:
        >>> of_metric("time/forward", 0.0251), of_metric("loss", 0.0251)
        ('25.1 ms', '0.0251')
    """
    unit = unit_of(name)
    return quantity(value, unit) if unit else compact(value)


def compact(value: float) -> str:
    """Return a value in at most about ten characters.

    Examples:
        >>> compact(0.93125), compact(1_234_567.0), compact(float("nan")), compact(3.0)
        ('0.93125', '1.23457e+06', 'nan', '3')
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:.6g}"
