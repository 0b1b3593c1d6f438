"""Which axis the steps of a metric are on.

Trackers give each name steps of its own: `loss` by batch beside `val/acc` by epoch. A row of ours has one step for
all its names, and what comes long after its step is a correction. So a name that counts something else than the
others gets an axis of its own, called so that the published name stays what it was: `val/acc` on the axis `val`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import otel_ml
from otel_ml.never_raises import call_site
from otel_ml.warn_once import reporter

__all__ = ["StepCounts", "own_axis", "whole"]

WITHIN = "last"
"""Of one rank's values of a name at one step the last counts, as in every tracker; ranks are averaged."""

KEPT_BEHIND = 512
"""Half of the steps that the service keeps in memory: what is later amends a step that it has to read again."""

FAR_AHEAD = 1024

_RESERVED = frozenset({"step", "time", "otel_ml"})


def whole(step: Any) -> int | None:
    """Return a step as an int where it is a whole number from 0 on; trackers take 3.0 and numpy's integers too."""
    try:
        index = int(step)
    except (TypeError, ValueError, OverflowError):
        return None
    return index if index >= 0 and index == step else None


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
        self._seen: dict[str, Any] = {}
        self._own: dict[str, str] = {}
        self._unstepped: dict[str, int] = {}

    def log(self, row: Mapping[str, Any], step: int) -> None:
        """Record a row, each name on its axis."""
        if step >= self.latest and self._seen.keys() >= row.keys() and not self._own:
            self.latest = step
            otel_ml.log(row, step=step, within=WITHIN)
            return
        by_axis: dict[str | None, dict[str, Any]] = {}
        for name, value in row.items():
            by_axis.setdefault(self.axis_of(name, step), {})[name] = value
        for axis, values in by_axis.items():
            otel_ml.log(values, step=step, axis=axis, within=WITHIN)

    def axis_of(self, name: str, step: int) -> str | None:
        """Return the axis of `name` at `step`: None for that of the run."""
        own = self._own.get(name)
        if own is not None:
            return own
        otherwise = self._counts_other_things(name, step)
        if otherwise is None:
            self._seen[name] = None
            self.latest = max(self.latest, step)
            return None
        return self._give_own(name, step, otherwise)

    def axis_beside(self, name: str) -> str | None:
        """Return the axis of a picture, a text or the like: where the metrics of its group, or of its name, have one.

        It is not part of a row, so it may be at any step, under the name that it has.
        """
        group = own_axis(name, "")
        return self._own.get(name) or (group if group in self._own.values() else None)

    def next(self, name: str) -> int:
        """Return the step of a value without one: the run's, or the next where the name has a value there already."""
        step = self._unstepped[name] = max(self.latest, self._unstepped.get(name, -1) + 1, 0)
        return step

    def _counts_other_things(self, name: str, step: int) -> str | None:
        if self.latest < 0:
            return None
        behind = self.latest - step
        if name in self._seen:
            return "epoch" if behind > KEPT_BEHIND else None
        if behind > 1 and step <= self.latest // 2:
            return "epoch"
        return "samples" if step > 2 * self.latest + FAR_AHEAD else None

    def _give_own(self, name: str, step: int, otherwise: str) -> str:
        axis = self._own[name] = own_axis(name, otherwise)
        if not name.startswith(f"{axis}/"):
            reporter.say(
                "own-axis",
                f"Metric {name!r} is at step {step} where the run is at {self.latest} ({call_site()}). It counts on "
                f"the axis {axis!r} and is published as '{axis}/{name}'; name it 'val/{name}' to keep its name.",
            )
        return axis
