"""The steps of values that are logged without one, as trackers count them: each call is a row of its own."""

from __future__ import annotations

import numbers
from collections.abc import Collection
from functools import cache

from otel_ml._internal.steps.axes import is_inside_a_step

__all__ = ["Rows", "rows_of"]


class Rows:
    """Counts where neither the call nor the program says which step it is."""

    def __init__(self) -> None:
        self._latest = 0
        self._taken: dict[str, int] = {}

    def step_of(self, names: Collection[str], step: int | None) -> int | None:
        """Return the step of a row: the one that was given, or the first that all of `names` still have free.

        That is the step of the rows before, or a later one. None, otel_ml's own, inside a step that the program
        entered by `set_step()`, `step()` or `steps()`.

        Examples:
            >>> rows = Rows()
            >>> [rows.step_of(["loss"], None), rows.step_of(["loss"], None), rows.step_of(["accuracy"], None)]
            [0, 1, 1]
            >>> rows.step_of(["loss"], 7), rows.step_of(["loss"], None)
            (7, 8)
        """
        if step is None:
            if is_inside_a_step():
                return None
            step = max((self._latest, *(self._taken.get(name, -1) + 1 for name in names)))
        # Anything else is passed on: otel_ml.log() says what is wrong with it.
        if isinstance(step, numbers.Integral):
            index = int(step)
            self._latest = max(self._latest, index)
            self._taken.update(dict.fromkeys(names, index))
        return step


@cache
def rows_of(run_id: str) -> Rows:
    """Return the rows of a run: who joins it later, such as a second logger, goes on after those there are.

    Kept as long as the process: a run may end and go on by its id.
    """
    del run_id
    return Rows()
