"""Which metrics have several rows at one value of their step metric: a loss of each batch, drawn over the epoch.

On an axis of the step metric one value of each is kept. W&B keeps every row, and draws all of them.
"""

from __future__ import annotations

__all__ = ["SharedIndex"]


class SharedIndex:
    """How far each metric has come, and those of which a value would have taken the place of another row's."""

    def __init__(self) -> None:
        self._reached: dict[str, tuple[int, int]] = {}
        self._shared: set[str] = set()

    def is_shared(self, name: str, index: int, row: int) -> bool:
        """Whether a metric has, or had before, a value of another row at its index, or comes back to an earlier one."""
        if name in self._shared:
            return True
        reached, of_row = self._reached.get(name, (-1, row))
        if index <= reached and row != of_row:
            self._shared.add(name)
            del self._reached[name]
            return True
        self._reached[name] = (index, row)
        return False
