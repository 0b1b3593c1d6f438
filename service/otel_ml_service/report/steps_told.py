"""What `otel-ml why` says of the steps of a run, for its page."""

from __future__ import annotations

from dataclasses import dataclass, replace

from otel_ml_service.findings.wording import plural
from otel_ml_service.report.contents import Contents
from otel_ml_service.why.answer import Answer
from otel_ml_service.why.ask import why_steps
from otel_ml_service.why.steps_answer import long_steps_of

__all__ = ["StepsTold", "Told", "steps_told"]

_MORE = 1.02
"""Times as many steps as before: only then a run that goes on is asked again. Of 10,000 steps that takes 2 s."""

_GROWN = 2.0
"""Times as long as usual: a pause in such a phase is what the answer is about."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is said of steps.

    Attributes:
        answer: what happened, and the verdict; None where there is nothing to say, or somebody was found.
        beside: beside who was found: which steps are far longer than most; empty where none are.
        phases: pauses in these are told with it.
    """

    answer: Answer | None = None
    beside: str = ""
    phases: frozenset[str] = frozenset()


def steps_told(run: Contents) -> Told:
    """Return what `why` says of the steps: where somebody was found, that is said by the page already."""
    facts = run.facts
    if not facts.places:
        return Told()
    if any(one.accuses and one.kind != "pause" for one in facts.findings):
        place = facts.places[0]
        # Without the findings, as long steps are not told where somebody was found, and here they stand beside that.
        long = long_steps_of(replace(facts, tables={}), place, min(facts.times[place]), max(facts.times[place]))
        many = "" if long is None else long.how_many(plural(long.steps, place.axis))
        return Told(beside=many and f"{many[:1].upper()}{many[1:]}.")
    answer = why_steps(facts)
    account = answer.account if answer is not None else ()
    return Told(answer, phases=frozenset(one.name for one in account if one.seconds > _GROWN * (one.usual_s or 0.0)))


class StepsTold:
    """What is said of the steps of a run that goes on."""

    def __init__(self) -> None:
        self._told, self._steps, self._found = Told(), 0, 0

    def of(self, run: Contents) -> Told:
        """Return it as of now, or of a moment ago."""
        steps, found = sum(map(len, run.facts.times.values())), len(run.facts.findings)
        # A run that is over is asked once more, whatever it has.
        if steps >= _MORE * self._steps or found != self._found or not run.facts.is_live:
            self._told, self._steps, self._found = steps_told(run), steps, found
        return self._told
