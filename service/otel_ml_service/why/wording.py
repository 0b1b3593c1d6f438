"""Steps, seconds and values as sentences have them."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["listed", "number", "ordinal", "plural", "seconds", "signed", "steps_text"]

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def seconds(value: float) -> str:
    """Return a duration in the unit that fits.

    Examples:
        >>> seconds(0.0149), seconds(1.02), seconds(130.0), seconds(0.0)
        ('14.9 ms', '1.02 s', '130 s', '0 s')
    """
    if not math.isfinite(value) or abs(value) < 5e-10:
        return f"{value:.0f} s"
    scale, unit = next((entry for entry in _UNITS if abs(value) >= entry[0]), _UNITS[-1])
    return f"{value / scale:.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} s"


def number(value: float) -> str:
    """Return a value in four digits, and one that is large without an exponent.

    Examples:
        >>> number(0.77123), number(16384.0), number(6.02e23), number(float("nan"))
        ('0.7712', '16,384', '6.02e+23', 'nan')
    """
    return f"{value:,.0f}" if _FOUR_DIGITS <= abs(value) < _MANY_DIGITS else f"{value:.4g}"


_FOUR_DIGITS, _MANY_DIGITS = 1e4, 1e12


def signed(text: str) -> str:
    """Return a figure with its sign.

    Examples:
        >>> signed("3 ms"), signed("-3 ms")
        ('+3 ms', '-3 ms')
    """
    return text if text.startswith("-") else f"+{text}"


def steps_text(first: int, last: int, axis: str = "step") -> str:
    """Return which steps are meant.

    Examples:
        >>> steps_text(80, 149), steps_text(7, 7), steps_text(3, 9, "rollout")
        ('steps 80-149', 'step 7', 'rollouts 3-9')
    """
    return f"{axis} {first:,}" if first == last else f"{axis}s {first:,}-{last:,}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    Examples:
        >>> plural(1, "step"), plural(1200, "step")
        ('1 step', '1,200 steps')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def ordinal(number: int) -> str:
    """Return a number as a place in a row.

    Examples:
        >>> [ordinal(number) for number in (2, 3, 11, 20, 21, 112, 1000)]
        ['2nd', '3rd', '11th', '20th', '21st', '112th', '1,000th']
    """
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def listed(words: Sequence[str], most: int = 4) -> str:
    """Return words as a list.

    Examples:
        >>> listed(["a", "b", "c"]), listed(list("abcdef"), 2)
        ('a, b and c', 'a, b and 4 more')
    """
    if len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most:,} more"
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
