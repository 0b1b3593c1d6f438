"""Lines of text, each as what differs from the one before it: spans that follow each other differ in a few numbers.

A line is a series of pairs. Each begins with how many characters follow as the line before has them, in two digits to
the base of 30; then comes what stands here in place of what that line has up to its next comma, or its end. The digits
are control characters, which no line of JSON has. The largest number of two digits means that the copy goes on in
the next pair. Compiled code (`native/line_deltas.c`) writes and reads it; without, nothing is written so, and it is
read here.
"""

from __future__ import annotations

import re

from otel_ml._internal.native import native

__all__ = ["as_deltas", "of_deltas"]

_DIGITS = {chr(code): value for value, code in enumerate(code for code in range(1, 32) if code != ord("\n"))}
_BASE = len(_DIGITS)
_MOST = _BASE**2 - 1
_PAIR = re.compile("([\x01-\x09\x0b-\x1f])([\x01-\x09\x0b-\x1f])([^\x00-\x1f]*)")


def as_deltas(text: str) -> str | None:
    """Return lines as deltas; None where that is not shorter, or they have other characters than those of ASCII."""
    return None if native is None else native.as_deltas(text)


def of_deltas(deltas: str, size: int) -> str:
    r"""Return the lines, which have so many characters together.

    Examples:
        >>> of_deltas('\x01\x01{"step":41,"rank":0}\n\x01\x0b2\x01\x0c', 41)
        '{"step":41,"rank":0}\n{"step":42,"rank":0}'

    Raises:
        ValueError: they are damaged.
    """
    text = _in_python(deltas) if native is None else native.of_deltas(deltas, size)
    if text is None or len(text) != size:
        raise ValueError(f"lines of {size} characters that were stored as what differs are damaged")
    return text


def _in_python(deltas: str) -> str | None:
    if not deltas.isascii():
        return None
    lines, before = [], ""
    for pairs in deltas.split("\n"):
        line = _whole(pairs, before)
        if line is None:
            return None
        lines.append(line)
        before = line
    return "\n".join(lines)


def _whole(pairs: str, before: str) -> str | None:
    """Return a line, of which `before` is the one before it; None where it cannot be."""
    parts: list[str] = []
    place = at = 0
    for pair in _PAIR.finditer(pairs):
        high, low, instead = pair.groups()
        count = _DIGITS[high] * _BASE + _DIGITS[low]
        if pair.start() != place or at + count > len(before) or (count == _MOST and instead):
            return None
        parts += before[at : at + count], instead
        place, at = pair.end(), at + count
        if count < _MOST:
            comma = before.find(",", at)
            at = len(before) if comma < 0 else comma
    return "".join(parts) if place == len(pairs) else None
