"""Which ranks have a phase of some steps, as spans show: one alone takes longer in it, or one has no timers at all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from otel_ml_service.findings.phases import UNTIMED, is_waiting
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.step_paths import newest_spans
from otel_ml_service.why.step_time import StepTime

__all__ = ["alone_in", "without_timers"]

_ALONE = 0.5
"""Of what a phase grew by: the other ranks are shorter than the one that is alone by that, at least."""

_MOSTLY = 0.8
"""Of the steps that are looked at, in which it is the same rank: in fewer it has a turn, as the others have."""


def alone_in(facts: RunFacts, place: Place, phase: str, by_s: float, steps: Sequence[int]) -> int | None:
    """Return the rank that alone takes longer in a phase of these steps; None where others do, too, or nobody knows.

    That is what its spans show, and no finding: for one, it is too seldom, or too few steps. In communication it says
    nothing: there, whoever is early waits.
    """
    if is_waiting(phase) or phase == UNTIMED or by_s <= 0:
        return None
    found = Counter(_longest(facts, place, phase, by_s, steps))
    rank, times = max(found.items(), key=lambda one: one[1], default=(None, 0))
    # Steps in which nobody is alone count as None, and speak against a rank, too.
    return rank if times >= _MOSTLY * found.total() else None


def without_timers(facts: RunFacts, place: Place, time: StepTime, steps: Sequence[int]) -> list[int]:
    """Return the ranks of a place that record no timers, where others do: what these wait for nobody can tell.

    Which ranks there are is known when the run has ended.
    """
    timed = {int(rank) for of_phase in time.ranks.values() for rank in of_phase.values()}
    heard = {rank for of_rank in newest_spans(facts, place, steps).values() for rank in of_rank}
    every = facts.hosts().get(place.role, {}).keys() if heard else set()
    return sorted(every - heard - timed)


def _longest(facts: RunFacts, place: Place, phase: str, by_s: float, steps: Sequence[int]) -> Iterator[int | None]:
    """Yield the rank that is alone in each of the newest steps, None where none is."""
    for of_rank in _seconds(facts, place, phase, steps):
        # There are two: `_seconds` yields no step of which only one rank is known.
        first, second = sorted(of_rank, key=lambda rank: -of_rank[rank])[:2]
        yield first if of_rank[first] - of_rank[second] >= _ALONE * by_s else None


def _seconds(facts: RunFacts, place: Place, phase: str, steps: Sequence[int]) -> Iterator[Mapping[int, float]]:
    """Yield rank → seconds in a phase, of each step of which spans of several ranks are kept."""
    for of_rank in newest_spans(facts, place, steps).values():
        found: dict[int, float] = defaultdict(float)
        for rank, spans in of_rank.items():
            # A rank without a span of that phase is there, too, with 0.
            found[rank] += sum(span.end_ns - span.start_ns for span in spans if span.name == phase) / 1e9
        if len(found) > 1 and any(found.values()):
            yield found
