"""Durations, bytes, shares and rates as people read them: three significant figures, in the unit that fits.

What programs read has plain numbers instead, in seconds, bytes and parts of 1.
"""

from __future__ import annotations

import math

__all__ = ["figure", "percent", "quantity", "seconds", "size"]

_FIGURES = 3
_PREFIXES = {"s": "mµn", "B": "kMGTP", "J": "kMGT", "W": "kM"}
"""Of each unit that has some: from a thousandth down for seconds, from a thousand up for the others."""

_LONG = (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1))
"""A unit of time and its seconds, and those of the next smaller one."""

_LEAST_S, _LEAST_MIN = 5e-10, 59.95
"""Below the first a duration is 0; from the second on three figures of it are a minute."""

_WITHOUT_EXPONENT = 1e12


def figure(value: float) -> str:
    """Return a number in three significant figures, and a large one without an exponent.

    Examples:
        >>> figure(0.0123456), figure(40.0), figure(1330402.0), figure(999.6), figure(-0.0), figure(float("nan"))
        ('0.0123', '40', '1,330,000', '1,000', '0', 'nan')
    """
    rounded = _rounded(value)
    return f"{rounded:,.0f}" if 1e3 <= abs(rounded) < _WITHOUT_EXPONENT else f"{rounded:.{_FIGURES}g}"


def seconds(value: float) -> str:
    """Return a duration: from a minute on in its two largest units.

    Examples:
        >>> seconds(0.02512), seconds(1.8), seconds(200.2), seconds(7200), seconds(200_000), seconds(0.0)
        ('25.1 ms', '1.8 s', '3 min 20 s', '2 h', '2 d 8 h', '0 s')
        >>> seconds(0.99996), seconds(-0.0149), seconds(59.97), seconds(3e-11), seconds(float("inf"))
        ('1 s', '-14.9 ms', '1 min', '0 s', 'inf s')
    """
    if not math.isfinite(value):
        return f"{value} s"
    if abs(value) < _LEAST_S:
        return "0 s"
    return _long(value) if abs(value) >= _LEAST_MIN else _with_prefix(value, "s")


def size(value: float) -> str:
    """Return bytes; a kB is 1,000 of them.

    Examples:
        >>> size(12), size(1536), size(1.2e9), size(999_999)
        ('12 B', '1.54 kB', '1.2 GB', '1 MB')
    """
    return _with_prefix(value, "B")


def percent(value: float) -> str:
    """Return a part of 1, or how much longer something is, in percent.

    Examples:
        >>> percent(0.7), percent(0.63412), percent(1.0), percent(0.0004), percent(-0.125), percent(12.8)
        ('70 %', '63.4 %', '100 %', '0.04 %', '-12.5 %', '1,280 %')
    """
    return f"{figure(100 * value)} %"


def quantity(value: float, unit: str) -> str:
    """Return a value with its unit: `s`, `B`, `J` and `W` in the multiple that fits, others as they are.

    Examples:
        >>> quantity(0.00312, "s"), quantity(3.4e10, "B"), quantity(12_345, "J"), quantity(65.0, "°C")
        ('3.12 ms', '34 GB', '12.3 kJ', '65 °C')
    """
    return seconds(value) if unit == "s" else _with_prefix(value, unit)


def _rounded(value: float) -> float:
    """Return `value` in three figures, so that what is chosen by its size fits what is shown of it."""
    # The sum makes 0 of -0.
    return float(f"{value:.{_FIGURES}g}") + 0.0


def _with_prefix(value: float, unit: str) -> str:
    prefixes, rounded = _PREFIXES.get(unit, ""), _rounded(value)
    # Thousands: 1,536 B has 1, and 0.0251 s has -1. Of the rounded number, so that 999,999 B is 1 MB.
    magnitude = math.floor(math.log10(abs(rounded)) / 3) if rounded and math.isfinite(rounded) else 0
    place = min(-magnitude if unit == "s" else magnitude, len(prefixes))
    if place < 1:
        return f"{figure(rounded)} {unit}"
    return f"{figure(rounded / 10.0 ** (-3 * place if unit == 's' else 3 * place))} {prefixes[place - 1]}{unit}"


def _long(value: float) -> str:
    # The largest unit of which there is one once the value is rounded to the next smaller unit: 59.97 s is a minute.
    fits = (entry for entry in _LONG if round(abs(value) / entry[3]) * entry[3] >= entry[1])
    unit, length, smaller, part = next(fits)
    whole, rest = divmod(round(abs(value) / part), length // part)
    return f"{'-' * (value < 0)}{whole:,} {unit}" + (f" {rest} {smaller}" if rest else "")
