"""The number at which an iterable begins to count: training that is continued says with it where it is."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

from otel_ml._internal.error_reporting import reporter

__all__ = ["UnexpectedNumbers", "first_number"]

_COUNT = re.compile(r"count\((\d+)\)")


def first_number(iterable: Any) -> int | None:
    """Return where an iterable that counts by one begins; None for what does not count, a data loader for one.

    A data loader may yield whole numbers, too: only what can do nothing but count is taken, a list of consecutive
    numbers included, and any of these under tqdm.

    Examples:
        >>> first_number(range(60, 70)), first_number(enumerate("ab", 60)), first_number(count(60))
        (60, 60, 60)
        >>> first_number([60, 61, 62]), first_number([3, 1, 2]), first_number(range(60, 100, 10)), first_number("abc")
        (60, None, None, None)
    """
    bare = _under_progress_bars(iterable)
    if isinstance(bare, range):
        return bare.start if bare.step == 1 and bare else None
    if isinstance(bare, enumerate):
        # It has no attribute for it: what it would be pickled as has the number.
        return int(bare.__reduce__()[1][1])
    if isinstance(bare, count):
        found = _COUNT.fullmatch(repr(bare))  # it has no other way to say so
        return int(found[1]) if found else None
    return _first_of_list(bare)


def _first_of_list(value: Any) -> int | None:
    numbers = value.tolist() if type(value).__module__ == "numpy" and value.ndim == 1 else value
    if not isinstance(numbers, (list, tuple)) or not numbers or not all(type(item) is int for item in numbers):
        return None
    first: int = numbers[0]
    return first if all(item == first + place for place, item in enumerate(numbers)) else None


def _under_progress_bars(iterable: Any) -> Any:
    while type(iterable).__module__.startswith("tqdm") and getattr(iterable, "iterable", None) is not None:
        iterable = iterable.iterable
    return iterable


_LOOKS = 2
"""Items that tell."""


class UnexpectedNumbers:
    """Looks at what an iterable yields that is not known to count: numbers that look like steps are reported, once.

    Two items tell: consecutive whole numbers above 0, alone or first in a tuple.
    """

    __slots__ = ("_first", "_looks", "_step")

    def __init__(self, step: int) -> None:
        self._step = step
        self._looks = _LOOKS
        self._first = 0

    def look(self, item: Any) -> bool:
        """Look at the next item; return whether one more is of interest."""
        number = item[0] if type(item) is tuple and item else item
        # A first number that is the loop's own step agrees with it: nothing is to be said.
        if type(number) is not int or number <= 0 or (self._looks == _LOOKS and number == self._step):
            return False
        self._looks -= 1
        if self._looks:
            self._first = number
        elif number == self._first + 1:
            reporter.say(
                "steps-not-taken",
                f"steps(): what it iterates over yields {self._first}, {number}, …, and its steps are {self._step}, "
                f"{self._step + 1}, … If those numbers are the steps, pass start={self._first}.",
                "steps-not-taken",
            )
        return self._looks > 0
