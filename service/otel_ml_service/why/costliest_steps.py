"""Which steps of a place need an answer most: those of its costliest finding, or of its largest change of time."""

from __future__ import annotations

from otel_ml_service.findings.change_points import ChangePoints, change_points
from otel_ml_service.why.facts import Place, RunFacts, Slow
from otel_ml_service.why.step_time import step_time

__all__ = ["NOTICED", "found_at", "quick_range", "slow_range"]

NOTICED = 0.05
"""Of the usual time: less is as usual."""


def slow_range(facts: RunFacts, place: Place) -> tuple[int, int] | None:
    """Return the steps of a place that need an answer most: its costliest finding, else its largest change of time."""
    found = [slow for slow in found_at(facts, place) if slow.kind != "pause"]
    # The first one is the costliest, as `RunFacts.findings` is sorted by cost.
    worst = next((slow for slow in found if slow.accuses), None)
    if worst is not None:
        return worst.since, worst.last
    if (slower := _other_level(facts, place, 1)) is not None:
        return slower
    return (found[0].since, found[0].last) if found else None


def quick_range(facts: RunFacts, place: Place) -> tuple[int, int] | None:
    """Return the steps of a place since which they are shortest, against those before; None where they never are."""
    return _other_level(facts, place, -1)


def _other_level(facts: RunFacts, place: Place, sign: int) -> tuple[int, int] | None:
    """Return the steps of the largest change of time to longer ones, or to shorter ones for -1, up to the way back."""
    time, points = step_time(facts, place), facts.once(_change_points, place)
    there = [change for change in points.changes if sign * change.by > NOTICED * change.before]
    if not there:
        return None
    most = max(there, key=lambda change: sign * change.by)
    # The other level lasts up to the first change the other way, or to the end.
    ends = [change.step for change in points.changes if change.step > most.step and sign * change.by < 0]
    return most.step, min(ends, default=max(time.seconds) + 1) - 1


def _change_points(facts: RunFacts, place: Place) -> ChangePoints:
    seconds = step_time(facts, place).seconds
    return change_points(list(seconds), list(seconds.values()))


def found_at(facts: RunFacts, place: Place) -> list[Slow]:
    """Return what was found at a place, the costliest first."""
    return [slow for slow in facts.findings if slow.place == place.prefix and slow.axis == place.axis]
