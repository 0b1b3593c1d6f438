"""A baseline that is logged at step 0, where a loop of `steps()` begins, too: what both call the same is said.

::

    log({"loss": evaluate()}, step=0)       before anything was trained
    for batch in steps(loader):
        log({"loss": train(batch)})         step 0, 1, …

"""

from __future__ import annotations

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.series.definition import OWN_COUNTS
from otel_ml._internal.series.pending import StepPartials
from otel_ml._internal.steps.axis import Step
from otel_ml.wire.attributes import DEFAULT_AXIS

__all__ = ["Baseline"]


class Baseline:
    """What the background thread has seen of a run's step 0; after that it looks no more."""

    def __init__(self) -> None:
        self._is_over = False
        self._names: set[str] = set()

    def look(self, step: Step, pending: StepPartials) -> None:
        """Look at what a step has gathered."""
        axis = step.axis
        if self._is_over or axis is None or axis.name != DEFAULT_AXIS or step.index is None:
            return
        # Steps are looked at in the order of their first record, so the loop's step 0 was looked at before.
        if step.index > 0:
            self._is_over = True
            return
        names = {series.definition.name for series in (*pending.moments, *pending.order) if series not in OWN_COUNTS}
        # A baseline has an object of its own (`Steps.keep_baseline_apart`).
        if axis.first_of_loop is not step:
            self._names |= names
        elif met := self._names & names:
            self._is_over = True
            reporter.say(
                "baseline-name",
                f"Step 0 has a baseline, of log(step=0) before steps(), and the first step of the loop: of "
                f"{', '.join(map(repr, sorted(met)))} it has both. Give the baseline names of its own, or an axis.",
            )
