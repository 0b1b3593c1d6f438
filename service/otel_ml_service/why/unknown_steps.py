"""Steps that a person asks about and that the run does not have, or not their times."""

from __future__ import annotations

from otel_ml_service.findings.wording import steps_text
from otel_ml_service.why.answer import ABOUT, Answer
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.step_time import StepTime

__all__ = ["NO_TIMERS", "unknown_steps"]

NO_TIMERS = (
    'There are no timers: put `with otel_ml.timed("forward"):` around the parts of a step, '
    "on at least two ranks, and the next run tells which rank and which part."
)


def unknown_steps(facts: RunFacts, place: Place, first: int, last: int, time: StepTime) -> Answer:
    """Return what is known of steps of which there are no times."""
    have = sorted(facts.times.get(place, {}))
    there = f"the run has {steps_text(have[0], have[-1], place.axis)}" if have else "the run has no steps of it"
    asked = steps_text(first, last, place.axis)
    what, why = f"Nothing is known of {asked}: {there}.", "these steps were not recorded, or have not closed yet."
    if any(first <= step <= last for step in have):
        what = f"How long {asked} took is not known: it was not timed, and nothing says when it began."
        why = "there is no time to compare with those of other steps."
    return Answer(
        run=facts.id, about=ABOUT, role=place.role, axis=place.axis, first=first, last=last, verdict="cannot tell",
        effect=None, explained=0.0,
        sentences=(
            what,
            f"Cannot tell: {why}",
            NO_TIMERS if not time.phases else "Ask for a step that is there.",
        ),
    )  # fmt: skip
