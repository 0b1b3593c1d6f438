"""Metrics that are NaN or infinite: since when, for how long, and in which of two runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import plural
from otel_ml_service.stored_runs.run_history import SeriesName
from otel_ml_service.why.answer import Evidence
from otel_ml_service.why.coincidences import first_not_finite, is_looked_at
from otel_ml_service.why.facts import Place, RunFacts

__all__ = [
    "NoNumber",
    "finite_no_more",
    "no_longer_finite",
    "no_numbers_now",
    "not_finite_in_one",
    "not_finite_since",
    "on_ranks",
]


class NoNumber(NamedTuple):
    """A metric whose newest values are NaN or infinite.

    Attributes:
        since: the first step of these.
        what: since when it is what.
        before: what it was then, as the rest of the sentence; empty where it never was a number.
    """

    since: int
    what: str
    before: str


def no_numbers_now(facts: RunFacts) -> Iterator[NoNumber]:
    """Yield the metrics that are not numbers now; the others are not read but for their newest value."""
    for place in facts.places:
        newest = max(facts.times[place])
        for name, values in facts.series(place):
            if math.isfinite(_last(values, newest)) or not is_looked_at(name):
                continue
            since = not_finite_since(values)
            if since is not None:
                last = [value for step, value in sorted(values.items()) if step < since][-1:]
                before = f"; the step before had {measured(name, last[0])}" if last else ""
                what = f"{name} is {values[since]} since {place.axis} {since:,}{on_ranks(facts, place, name, since)}"
                yield NoNumber(since, what, before)


def _last(values: dict[int, float], newest: int) -> float:
    """Return the value of the highest step; `newest` is that of the place.

    Behind it there may be one of an older step that came late: of most metrics the last one is of the newest step.
    """
    last = next(reversed(values), None)
    return 0.0 if last is None else values[last if last == newest else max(values)]


def no_longer_finite(facts: RunFacts, place: Place, first: int, last: int) -> Iterator[Evidence]:
    """Yield which metrics of a place are NaN or infinite for the first time in the steps `first` to `last`."""
    for name, values in sorted(facts.series(place)):
        broken = first_not_finite(values) if is_looked_at(name) else None
        if broken is not None and first <= broken <= last:
            where = on_ranks(facts, place, name, broken)
            yield Evidence("change", broken, f"{name} became {values[broken]} at {place.axis} {broken:,}{where}")


def on_ranks(facts: RunFacts, place: Place, name: str, step: int) -> str:
    """Return on which ranks a metric of a place was not finite at a step; nothing where the run does not keep that."""
    own = name.removeprefix(place.prefix)
    # Read as it is needed: of most names the first one is told.
    told = ((_told(facts, place, "ranks", one, step), _told(facts, place, "rank", one, step)) for one in _bases(own))
    ranks, rank = next((found for found in told if found[0] is not None), (None, None))
    if ranks is None:
        return ""
    if rank is None:
        return f", on all {ranks:,} ranks at once"
    return f", on rank {rank} alone" if ranks == 1 else f", on {ranks:,} ranks, of which rank {rank} is the lowest"


def _bases(name: str) -> tuple[str, str]:
    """Return a name, and the one that it is a further value of: `loss` of `loss/max`."""
    return name, name.rpartition("/")[0]


def _told(facts: RunFacts, place: Place, which: str, name: str, step: int) -> int | None:
    key = SeriesName(place.axis, f"{place.prefix}{RESERVED_PREFIX}nonfinite_{which}/{name}")
    value = facts.history.series.get(key, {}).get(step)
    return None if value is None else int(value)


def finite_no_more(name: str, values: Mapping[int, float], at: int, where: str) -> str:
    """Return that a metric is no longer a number, or was none for a while.

    Args:
        name: of the metric.
        values: of it.
        at: the first step in which it was none.
        where: on which ranks.
    """
    steps = sorted(values)
    # There is a step before, and it is finite: `at` is the first one that is not behind one that is.
    before, later = values[steps[steps.index(at) - 1]], [step for step in steps if step > at]
    again = next((step for step in later if math.isfinite(values[step])), None)
    if again is None:
        return f"{name} became {values[at]} at step {at:,}{where}; the step before had {measured(name, before)}."
    lacking = sum(not math.isfinite(value) for value in values.values())
    share = f"{lacking:,} of {plural(len(steps), 'step')}"
    after = "the one after it" if again == later[0] else f"step {again:,} again"
    return (
        f"{name} was {values[at]} at step {at:,}{where}, and not finite in {share}; "
        f"the step before had {measured(name, before)}, {after} {measured(name, values[again])}."
    )


def not_finite_in_one(a: RunFacts, b: RunFacts) -> Iterator[str]:
    """Yield which metrics are no longer numbers in one run alone: no difference says so."""
    for name, run, other in (("A", a, b), ("B", b, a)):
        for place in run.places:
            for metric, values in sorted(run.series(place)):
                of_other = other.history.series.get(SeriesName(place.axis, metric), {})
                broken = not_finite_since(values) if is_looked_at(metric) else None
                if broken is not None and of_other and not_finite_since(of_other) is None:
                    where = "in all steps" if broken == min(values) else f"from {place.axis} {broken:,} on"
                    yield f"{metric} is {values[broken]} in {name} {where}, and finite in the other run."


def not_finite_since(values: Mapping[int, float]) -> int | None:
    """Return the step from which on no value is finite; None where the last one is."""
    last = None
    for step in sorted(values, reverse=True):
        if math.isfinite(values[step]):
            break
        last = step
    return last
