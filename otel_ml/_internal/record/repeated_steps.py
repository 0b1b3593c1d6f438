"""Steps that a process goes through again: what it records at both times under one name is said.

::

    for epoch in range(3):
        for i, batch in enumerate(loader):
            log({"loss": train(batch)}, step=i)     step 0, 1, … of each epoch: the mean over epochs

"""

from __future__ import annotations

from otel_ml._internal.error_reporting import reporter
from otel_ml._internal.series.definition import OWN_COUNTS, Series
from otel_ml._internal.series.pending import StepPartials
from otel_ml._internal.steps.axis import Axis, Step

__all__ = ["RepeatedSteps"]

_EACH = 16
"""Of so many steps the names of one are remembered, and those of the first one of each axis."""

_REMEMBERED = 256
"""Steps of an axis whose names are remembered."""


class RepeatedSteps:
    """What the background thread has seen of a run's steps; once it has said something it looks no more."""

    def __init__(self) -> None:
        self._is_over = False
        self._names: dict[str, dict[int, frozenset[str]]] = {}
        self._met: dict[str, dict[int, frozenset[str]]] = {}

    def look(self, step: Step, pending: StepPartials) -> None:
        """Look at what a step has gathered."""
        if self._is_over or step.axis is None or step.index is None:
            return
        known = self._names.setdefault(step.axis.name, {})
        # `not known`: the first step of each axis, which is where a loop that counts anew begins.
        if step.index % _EACH == 0 or step.index in known or not known:
            self._compare(step.axis, step.index, pending, known)
        if found := step.axis.second_pass.found:
            met = self._met.get(step.axis.name, {})
            # At a step that came again by chance a name may have met itself, too: only steps of the second pass count.
            names = frozenset[str]().union(*(met[index] for index in met if index in found))
            if names:
                self._is_over = True
                reporter.say("steps-again", _begun_again(step.axis, names))

    def _compare(self, axis: Axis, index: int, pending: StepPartials, known: dict[int, frozenset[str]]) -> None:
        all_series = [series for series in (*pending.moments, *pending.order) if series not in OWN_COUNTS]
        names = frozenset(series.definition.name for series in all_series)
        before = known.get(index)
        if axis.second_pass.may_hold(index):
            if before is None:  # both passes may have come between two looks
                before = names if all(_is_several(series, pending) for series in all_series) else frozenset()
            if met := names & before:
                _remember(self._met.setdefault(axis.name, {}), index, met)
        _remember(known, index, names)


def _remember(of_steps: dict[int, frozenset[str]], index: int, names: frozenset[str]) -> None:
    of_steps[index] = names | of_steps.get(index, frozenset())
    if len(of_steps) > _REMEMBERED:
        del of_steps[list(of_steps)[1]]  # never the first one: a loop may begin again there


def _is_several(series: Series, pending: StepPartials) -> bool:
    """Whether a series has more than one record."""
    # Of a bare series `moments` has the first record alone; those after it are in `more` (`StepPartials`).
    if series in pending.moments:
        return pending.moments[series][0] > 1 or series in pending.more
    # Where there is one record, it is both the first and the last.
    return pending.order[series].first_ns != pending.order[series].last_ns


def _begun_again(axis: Axis, met: frozenset[str]) -> str:
    again = axis.second_pass
    names = sorted(met)
    what = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"Step {again.found[0]} of axis {axis.name!r}, and those after it, were begun again after step {again.after}: "
        f"what {what} had there before and has now is reduced together, as of several records in a step. Have steps "
        "count on over epochs, as `for batch in otel_ml.steps(loader)` does."
    )
