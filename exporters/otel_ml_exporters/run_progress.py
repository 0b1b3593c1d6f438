"""How far a run is, from its records as they come."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from otel_ml.flatten import leaves
from otel_ml.wire.attributes import DEFAULT_AXIS, TIME_AXIS
from otel_ml.wire.published_name import published_name
from otel_ml_exporters.records import Params, Record, StepRecord

__all__ = ["RunProgress"]

_RECENT = 48
"""Steps by which the time left is judged."""

_REMAINING = "progress/remaining_steps"

_TOTALS = ("max_steps", "total_steps", "num_steps", "train_steps", "steps")
"""Parameters by which programs say how many steps there will be."""


@dataclass
class RunProgress:
    """Takes records in the order of `seq`.

    Attributes:
        newest: the step that says how far the run is; of who trains, and of the axis `step` where there is one.
    """

    newest: StepRecord | None = None
    _total: float | None = None
    _said: float | None = None
    _times: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def add(self, record: Record) -> None:
        """Take one record; a correction of an older step is passed over."""
        if isinstance(record, Params):
            self._total = _total(record, self._total)
        elif isinstance(record, StepRecord) and not record.amendment:
            # Of whatever role: who has a `Progress` says how much the job has still to do.
            self._said = record.values.get(_REMAINING, self._said)
            # Rows of another place count only where they tell more: else roles would take turns.
            if self.newest is None or _place(record) == _place(self.newest) or _tells(record) > _tells(self.newest):
                self._take(record)

    def _take(self, record: StepRecord) -> None:
        # Loading a model, another role's steps, and what passed before a restart say nothing of how long a step takes.
        if self.newest is not None and (_place(record), record.attempt) != (_place(self.newest), self.newest.attempt):
            self._times.clear()
        self.newest = record
        self._times.append((record.step, record.time))

    @property
    def fraction(self) -> float | None:
        """How much of the run is done, from 0 to 1; None where it does not say how long it is."""
        remaining = self._remaining
        if self.newest is None or remaining is None:
            return None
        # Steps count from 0: after step 9 ten are done.
        done = max(0, self.newest.step + 1)
        return done / max(1.0, done + remaining)

    @property
    def seconds_left(self) -> float | None:
        """Until the end, at the speed of the last steps; None where that is not known."""
        remaining = self._remaining
        if not self._times or remaining is None:
            return None
        (first, began), (last, ended) = self._times[0], self._times[-1]
        # Records have the clocks of their hosts: one that was set back meanwhile tells nothing.
        return (ended - began) / (last - first) * remaining if last > first and ended >= began else None

    @property
    def _remaining(self) -> float | None:
        """How many steps are still to do: as `Progress` of the diagnostics recorded it, or by a parameter."""
        if self._said is not None and math.isfinite(self._said):
            return max(0.0, self._said)
        if self._total is None or self.newest is None:
            return None
        return max(0.0, self._total - self.newest.step - 1)


def _place(record: StepRecord) -> tuple[str, str]:
    return record.role, record.axis


def _tells(record: StepRecord) -> tuple[bool, bool, bool]:
    """Return how much a row tells of how far the run is: most on the axis `step`, of the role without a prefix."""
    is_main = published_name(record.role, record.axis, "x") == "x"
    return record.axis != TIME_AXIS, record.axis == DEFAULT_AXIS, is_main


def _total(record: Params, before: float | None) -> float | None:
    # Of nested parameters the last part is the name: `trainer.max_steps`. The deepest come first, so that those of the
    # run win over those of a part of it, such as `scheduler.max_steps`.
    deepest_first = sorted(leaves(record.params), key=lambda leaf: -leaf[0].count("."))
    said = {name.rpartition(".")[2]: value for name, value in deepest_first}
    totals = (total for name in _TOTALS if (total := _number_of_steps(said.get(name))) is not None)
    return next(totals, before)


def _number_of_steps(value: object) -> float | None:
    """Return what a parameter says; None where that is a flag or a text, or no end is in sight (-1, inf)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if value > 0 and math.isfinite(value) else None
    except OverflowError:  # a whole number that no double can hold
        return None
