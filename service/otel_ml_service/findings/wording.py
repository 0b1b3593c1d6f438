"""Steps, counts and values as sentences have them; what has a unit is in `otel_ml/quantities.py`."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["listed", "number", "ordinal", "plural", "signed", "steps_text"]


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
