"""Timers of a loop whose step only a `log(step=)` at its end says: each counts in the step before.

::

    for i in range(n):
        with timed("forward"): …        step −, 0, 1, …: what is current when it begins
        log({"loss": loss}, step=i)     step 0, 1, 2, …

A timer cannot know what will be said after it. So it is told from how it begins: before the first step the timers of an
iteration have none, and each step after that has the same ones.
"""

from __future__ import annotations

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.series.definition import Series
from otel_ml._internal.series.pending import StepPartials
from otel_ml._internal.steps.axis import Axis, Step
from otel_ml._internal.timers.timer_definitions import TIMERS
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["TrailingSteps"]

_ENOUGH = 2
"""Steps that have the timers of the iteration before the first one: one may be a try before the loop."""


class TrailingSteps:
    """What the background thread has seen of a run's first steps; after that it looks no more."""

    def __init__(self) -> None:
        self._is_over = False
        self._before: set[Series] = set()
        self._of: dict[Step, set[Series]] = {}

    def look(self, step: Step, pending: StepPartials) -> None:
        """Look at what a step has gathered, and say it once where timers count in the step before."""
        if self._is_over:
            return
        timers = {definition.series for definition in list(TIMERS.values())} & pending.moments.keys()
        # Recorded before the process has entered any step: a step that was left would be its base.
        if step.axis is None and step.base is None and not self._of:
            self._before |= timers
        elif step.axis is not None and step.axis.name == DEFAULT_AXIS:
            self._of.setdefault(step, set()).update(timers)
            self._decide(step.axis)

    def _decide(self, axis: Axis) -> None:
        *complete, _ = self._of.values()  # the newest may get more timers yet
        is_other_loop = axis.explicit or not self._before or any(timers != self._before for timers in complete)
        self._is_over = is_other_loop or len(complete) >= _ENOUGH
        if self._is_over and not is_other_loop:
            names = ", ".join(sorted(series.definition.name.removeprefix("time/") for series in self._before))
            reporter.say(
                "timers-before-step",
                f"Timers ({names}) measure before log(step=…) says which step it is: they count in the step before, "
                "and the first step has two. Loop over otel_ml.steps(…), or call set_step(i) first.",
            )
