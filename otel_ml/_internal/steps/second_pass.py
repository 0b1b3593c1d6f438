"""A program that goes through steps of an axis again, as a loop does that counts anew in each epoch."""

from __future__ import annotations

__all__ = ["SecondPass"]

_CERTAIN = 16
"""Steps one after the other, also in several passes through all there are. Fewer come again by chance, as samples do at
the versions of a policy that made them."""


class SecondPass:
    """Of one axis.

    Attributes:
        first, last: of the steps entered one after the other, all below the latest one.
        latest: the latest step when that began. Where it grows meanwhile, another thread goes on, or what is entered
            again is a value that comes late.
        found: the steps that were gone through again, when that was certain.
        after: the latest step then.
    """

    __slots__ = ("_count", "_lowest", "after", "first", "found", "last", "latest")

    def __init__(self) -> None:
        self.first: int = -2
        self.last: int = -2
        self.latest: int = -1
        self.found: range = range(0)
        self.after: int = -1
        self._count: int = 0
        self._lowest: float = float("inf")

    def enter(self, index: int, latest: int) -> None:
        """Know that a step below the latest one, which was left before, was entered again."""
        self._lowest = min(self._lowest, index)
        if latest != self.latest or (index != self.last + 1 and not self._begins_anew(index)):
            self.first, self.latest, self._count = index, latest, 0
        self.last = index
        self._count += 1
        if self._count >= _CERTAIN:
            self.found, self.after = range(self.first, index + 1), latest

    def may_hold(self, index: int) -> bool:
        """Whether this step was entered again by what is, or may become, a second pass."""
        return self.first <= index <= self.last or index in self.found

    def _begins_anew(self, index: int) -> bool:
        """Whether a pass through all steps, from the first one to the one before the latest, is followed by another."""
        return index == self.first == self._lowest and self.last == self.latest - 1
