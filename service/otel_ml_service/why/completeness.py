"""How much of the steps in question there is: who is missing, since when and why, and whether more will come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from otel_ml_service.findings.wording import plural, steps_text
from otel_ml_service.stored_runs.missing_ranks import Silence, steps_without_a_rank
from otel_ml_service.why.answer import Evidence
from otel_ml_service.why.coincidences import eligible
from otel_ml_service.why.facts import Place, RunFacts

__all__ = ["completeness"]

_NAMED = 4
"""Ranks that are missing: of a host that is gone, the first tell where to look."""


def completeness(facts: RunFacts, place: Place, first: int, last: int) -> list[Evidence]:
    """Return how much of the steps there is, who is missing, and whether there will be more."""
    steps = [step for step in facts.times.get(place, {}) if first <= step <= last]
    lacking = len(steps_without_a_rank(steps, facts.incomplete.get(place, ()), facts.silences(place)))
    whole = f"no rank is missing in {len(steps) - lacking:,} of {plural(len(steps), place.axis)}"
    found = [Evidence("completeness", None, whole)] * bool(steps) + [*_who_is_missing(facts, place, steps)]
    if (metrics := eligible(facts)) > 0:
        found.append(
            Evidence(
                "completeness",
                None,
                f"{plural(metrics, 'metric')} of the run {'is' if metrics == 1 else 'are'} looked at for changes",
            )
        )
    return [*found, *_end(facts, place, first)]


def _who_is_missing(facts: RunFacts, place: Place, steps: Sequence[int]) -> Iterator[Evidence]:
    """Yield a line for each rank of which nothing arrived in some of the steps, and why, where that is known."""
    found = [(one, [step for step in steps if one.covers(step)]) for one in facts.silences(place)]
    missing = [(one, without) for one, without in found if without]
    for one, without in missing[:_NAMED]:
        which = steps_text(without[0], without[-1], place.axis)
        text = f"rank {one.rank} has no values in {which}{_why_silent(facts, place, one)}"
        yield Evidence("completeness", without[0], text)
    if more := missing[_NAMED:]:
        have = "has" if len(more) == 1 else "have"
        yield Evidence("completeness", None, f"{len(more):,} more {have} none in some of these steps")


def _why_silent(facts: RunFacts, place: Place, silence: Silence) -> str:
    killed = [one for one in facts.history.failures if one.was_killed and one.role == place.role]
    last = max((one for one in killed if one.rank == silence.rank), key=lambda one: one.time, default=None)
    # Who was heard again is missing in these steps for another reason than its death.
    if last is None or silence.last is not None:
        return ""
    return ": it was killed" + ("" if last.step is None else f" at {last.axis} {last.step:,}")


def _end(facts: RunFacts, place: Place, first: int) -> list[Evidence]:
    status = facts.history.status
    if facts.is_live and status == "running":  # a service stays some seconds after the end of its job
        newest = max(facts.times.get(place, {}), default=first)
        return [Evidence("state", None, f"the run goes on: this is as of {steps_text(newest, newest, place.axis)}")]
    if status == "finished":
        return []
    ended = f"the run has no end: its state is {status!r}" if status == "running" else f"the run ended as {status!r}"
    return [Evidence("state", None, ended)]
