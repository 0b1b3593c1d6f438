"""Numbers of tables on a terminal: ages, counts, values."""

from __future__ import annotations

import math

__all__ = ["age", "compact", "thousands"]


def age(seconds: float) -> str:
    """Return a duration in its largest unit.

    Examples:
        >>> age(30), age(7200), age(200_000), age(3590)
        ('30 s', '2 h', '2 d', '1 h')
    """
    for unit, length, smaller in (("d", 86_400, 3_600), ("h", 3_600, 60), ("min", 60, 1)):
        # Of what would be shown in the next smaller unit: 59.8 min are an hour, not 60 min.
        if round(seconds / smaller) * smaller >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def thousands(count: int) -> str:
    """Return a whole number with separators.

    Examples:
        >>> thousands(48210)
        '48,210'
    """
    return f"{count:,}"


def compact(value: float) -> str:
    """Return a value in at most about ten characters.

    Examples:
        >>> compact(0.93125), compact(1_234_567.0), compact(float("nan")), compact(3.0)
        ('0.93125', '1.23457e+06', 'nan', '3')
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:.6g}"
