"""Which axis the steps of a metric are on.

Trackers give each name steps of its own: `loss` by batch beside `val/acc` by epoch. A row of ours has one step for
all its names, and ranks wait for each other there: so a group of names that counts something else gets an axis of its
own, `val/acc` the axis `val`, as soon as it is known what the run counts. No name becomes another by it: what is
published is `val/acc` in either case, and a name without a group, which another axis would rename, stays on that of
the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import otel_ml

__all__ = ["StepCounts", "counted", "own_axis", "whole"]

WITHIN = "last"
"""Of one rank's values of a name at one step the last counts, as in every tracker; ranks are averaged."""

# What is beyond twice the latest step and this many more counts something else, such as samples. After 40 steps a
# value at 500 is still one of the run's steps, and one at 1,200 is not.
FAR_AHEAD = 1024

COUNTED = 32
"""Later steps that the run has come to before it is known what it counts. One number tells nothing: an evaluation at 0
comes before the first iteration, one of epoch 12 before those of a resumed run, and on rank 0 alone."""

_RESERVED = frozenset({"step", "time", "otel_ml"})


def whole(step: Any) -> int | None:
    """Return a step as an int where it is a whole number from 0 on; trackers take 3.0 and numpy's integers too."""
    try:
        index = int(step)
        is_whole = bool(index >= 0 and index == step)
    except Exception:  # noqa: BLE001 (somebody's object, and torch raises RuntimeError)
        return None
    return index if is_whole else None


def counted(step: Any) -> Any:
    """Return a step as `whole()` has it; one that is none as it was given: who records at it says what is wrong."""
    index = None if isinstance(step, bool) else whole(step)
    return step if index is None else index


def own_axis(name: str, otherwise: str) -> str:
    """Return the axis on which `name` keeps its published name: what stands before its last slash.

    Examples:
        >>> own_axis("val/acc", "epoch"), own_axis("acc", "epoch")
        ('val', 'epoch')
    """
    group = name.rpartition("/")[0]
    return group if group and group not in _RESERVED else otherwise


class StepCounts:
    """The steps of one run of a tracker."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, with a new run."""
        self.latest: int = -1
        self._advances: int = 0
        self._seen: dict[str, int] = {}
        self._own: dict[str, str] = {}
        self._unstepped: dict[str, int] = {}

    def log(self, row: Mapping[str, Any], step: int) -> None:
        """Record a row, each name on its axis."""
        # The usual row: names that are known, and none that has left the run's axis. Nothing has to be decided then
        # for each name.
        if step >= self.latest and self._seen.keys() >= row.keys() and not self._own:
            self._come_to(step)
            self._seen.update(dict.fromkeys(row, step))
            otel_ml.log(row, step=step, within=WITHIN)
            return
        by_axis: dict[str | None, dict[str, Any]] = {}
        for name, value in row.items():
            by_axis.setdefault(self.axis_of(name, step), {})[name] = value
        for axis, values in by_axis.items():
            otel_ml.log(values, step=step, axis=axis, within=WITHIN)

    def axis_of(self, name: str, step: int) -> str | None:
        """Return the axis of `name`, which it keeps from its first step on: None for that of the run."""
        # Asked once, at the first value of a name; an axis that was given to it stays. `own_axis(name, "")` is empty
        # for a name without a group, which then stays in the rows (ADR 0058).
        own = self._own.get(name)
        if own is None and name not in self._seen and self._counts_other_things(step):
            own = own_axis(name, "")
        if own:
            self._own[name] = own
            return own
        self._seen[name] = max(step, self._seen.get(name, step))
        self._come_to(step)
        return None

    def axis_beside(self, name: str) -> str | None:
        """Return the axis of a picture, a text or the like: where the metrics of its group, or of its name, have one.

        It is not part of a row, so it may be at any step, under the name that it has.
        """
        group = own_axis(name, "")
        return self._own.get(name) or (group if group in self._own.values() else None)

    def next(self, name: str) -> int:
        """Return the step of a value without one: the run's, or the next where the name has a value there already."""
        # Two memories: `_seen` has what was logged with a step, too, and `_unstepped` what this method has handed out
        # and may not be logged yet.
        newest = max(self._unstepped.get(name, -1), self._seen.get(name, -1))
        step = self._unstepped[name] = max(self.latest, newest + 1)
        return step

    def _come_to(self, step: int) -> None:
        if step > self.latest:
            self.latest = step
            self._advances += 1

    def _counts_other_things(self, step: int) -> bool:
        """Whether a step is far from where the run is, by what it has counted so far."""
        if self._advances < COUNTED:
            return False
        # Half the way back, not one step: at 100, a value of step 90 only comes late, and one of step 50 counts
        # something else.
        is_behind = self.latest - step > 1 and step <= self.latest // 2
        return is_behind or step > 2 * self.latest + FAR_AHEAD
