"""A set of whole numbers that are mostly consecutive: running numbers received, steps known, span ids seen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["IntervalSet"]


class IntervalSet:
    """Whole numbers as closed intervals; memory is one pair of ints per gap.

    Examples:
        >>> seen = IntervalSet()
        >>> seen.add(1), seen.add(2), seen.add(2), seen.add(5)
        (True, True, False, True)
        >>> seen.pairs()
        [(1, 2), (5, 5)]
    """

    __slots__ = ("_highs", "_lows")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._lows: list[int] = []
        self._highs: list[int] = []
        for low, high in pairs:
            self._lows.append(low)
            self._highs.append(high)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._lows, number) - 1
        return place >= 0 and number <= self._highs[place]

    def __len__(self) -> int:
        return len(self._lows)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._lows, self._highs, strict=True)

    def pairs(self) -> list[tuple[int, int]]:
        """Return the intervals, ascending."""
        return list(self)

    def add(self, number: int) -> bool:
        """Add `number`; False where it was there."""
        lows, highs = self._lows, self._highs
        if highs and number == highs[-1] + 1:  # the usual case: the next one
            highs[-1] = number
            return True
        place = bisect_right(lows, number)
        if place and number <= highs[place - 1]:
            return False
        joins_left = place > 0 and highs[place - 1] == number - 1
        joins_right = place < len(lows) and lows[place] == number + 1
        if joins_left and joins_right:
            highs[place - 1] = highs.pop(place)
            del lows[place]
        elif joins_left:
            highs[place - 1] = number
        elif joins_right:
            lows[place] = number
        else:
            lows.insert(place, number)
            highs.insert(place, number)
        return True

    def go_on(self, first: int, count: int) -> bool:
        """Add `count` numbers from `first` on, where all are higher than any that is here; False, and nothing, else.

        Examples:
            >>> seen = IntervalSet([(1, 4)])
            >>> seen.go_on(5, 3), seen.go_on(9, 2), seen.go_on(10, 2)
            (True, True, False)
            >>> seen.pairs()
            [(1, 7), (9, 10)]
        """
        # An empty set: below `first`, and not right below it, so that an interval of its own begins.
        last = self._highs[-1] if self._highs else first - 2
        if first <= last:
            return False
        if first == last + 1:
            self._highs[-1] += count
        else:
            self._lows.append(first)
            self._highs.append(first + count - 1)
        return True

    def any_between(self, low: int, high: int) -> bool:
        """Whether a number lies strictly between `low` and `high`."""
        # The first interval that ends above `low`.
        place = bisect_left(self._highs, low + 1)
        return place < len(self._lows) and max(self._lows[place], low + 1) < high

    def prefix_end(self, start: int) -> int:
        """Return the largest n such that all of `start` … n are here; `start - 1` where `start` is not.

        Examples:
            >>> IntervalSet([(0, 4), (6, 9)]).prefix_end(1)
            4
        """
        place = bisect_right(self._lows, start) - 1
        return self._highs[place] if place >= 0 and self._highs[place] >= start else start - 1

    @property
    def highest(self) -> int | None:
        """The largest number, or None."""
        return self._highs[-1] if self._highs else None

    def highest_below(self, number: int) -> int:
        """Return the largest number below `number`; 0 where there is none.

        Examples:
            >>> IntervalSet([(0, 4), (9, 9)]).highest_below(9)
            4
        """
        place = bisect_left(self._lows, number) - 1
        return min(self._highs[place], number - 1) if place >= 0 else 0

    def fill_lowest(self, keep: int) -> None:
        """Fill the lowest gaps where there are more than `keep` intervals.

        Examples:
            >>> seen = IntervalSet([(1, 1), (3, 3), (5, 9)])
            >>> seen.fill_lowest(2)
            >>> seen.pairs()
            [(1, 3), (5, 9)]
        """
        excess = len(self._lows) - keep
        if excess > 0:
            self._highs[0] = self._highs[excess]
            del self._lows[1 : excess + 1], self._highs[1 : excess + 1]

    def forget_lowest(self, keep: int) -> None:
        """Keep only the `keep` highest intervals."""
        excess = len(self._lows) - keep
        if excess > 0:
            del self._lows[:excess], self._highs[:excess]
