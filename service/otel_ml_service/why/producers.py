"""Whose samples a metric's change comes from: by what `consumed()` counted, and the metric of each producer.

A metric that is recorded for each producer, too (`reward` and `reward/generator/3`), is the mean of these, weighted by
how many samples each gave (`consumed/samples/generator/3`). Without one of them it is the mean of the others: what is
gone of a change then came by its samples. Both are counts of what was linked, no correlation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from otel_ml_service.stored_runs.run_history import SeriesName
from otel_ml_service.why.answer import CAUSED
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.mean import mean

__all__ = [
    "USUAL",
    "Mix",
    "Producer",
    "Responsible",
    "are_parts_of",
    "is_about_producers",
    "mix_of",
    "mostly_by",
    "producers_of",
    "responsible_for",
]

_SAMPLES, _VERSION, _STALENESS = "consumed/samples", "consumed/version", "consumed/staleness"

USUAL, _FEW = 16, 4
"""Steps before the change that are looked at, and how many it takes, of those after it, too."""

_ALIKE = 0.35
"""Part of the change by which the producers' own may make up another one: then they are not what the metric is of."""

_LARGEST_PART = 0.5
"""Of the producers: what most of them have in common is nobody's. And of a change, for it to be mostly by some."""

Series = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Producer:
    """Who made samples, and what a step took of them.

    Attributes:
        role, rank: as `consumed()` publishes them: the first ten letters of the role.
        samples, version, staleness: step → of this producer's samples.
        values: step → the metric, of this producer's samples.
    """

    role: str
    rank: int
    samples: Series
    version: Series
    staleness: Series
    values: Series

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.role} {self.rank}"


@dataclass(frozen=True, slots=True)
class Responsible:
    """Producers, and how much less a metric would have changed without their samples.

    Attributes:
        producers: who; the one with most samples first.
        part: of the change that is gone without them, 0 to 1.
        without: what the metric would have been after the change.
    """

    producers: Sequence[Producer]
    part: float
    without: float


@dataclass(frozen=True, slots=True)
class Mix:
    """Of whom the samples are, before a change and after it: it came by that, and what each made stayed as it was.

    Attributes:
        shares: producer, its share of the samples before and after; whose share changed most comes first.
        part: of the change that is gone with the former shares, 0 to 1.
        without: what the metric would have been after the change, with these.
    """

    shares: Sequence[tuple[Producer, float, float]]
    part: float
    without: float


def producers_of(facts: RunFacts, place: Place, metric: str) -> list[Producer]:
    """Return who made what the steps of a place consumed; the values of those are empty of whom there are none."""
    series = facts.history.series
    prefix = f"{place.prefix}{_SAMPLES}/"
    found = []
    for key, samples in list(series.items()):
        who = key.name.removeprefix(prefix)
        role, _, rank = who.rpartition("/")
        # `consumed/samples` itself is of all producers, and further reductions (`…/max`) end with no rank.
        if key.axis != place.axis or who == key.name or not role or not rank.isdecimal():
            continue
        version, staleness, values = (
            series.get(SeriesName(place.axis, f"{name}/{who}"), {})
            for name in (f"{place.prefix}{_VERSION}", f"{place.prefix}{_STALENESS}", metric)
        )
        found.append(Producer(role, int(rank), samples, version, staleness, values))
    return sorted(found, key=lambda one: (-sum(one.samples.values()), one.name))


def is_about_producers(facts: RunFacts, place: Place, metric: str) -> bool:
    """Whether a metric tells of those who made samples: what they gave, or another metric for one of them."""
    name = metric.removeprefix(place.prefix)
    # `reward/generator/3` is the metric of one producer, if generator 3 gave samples.
    whole, role, rank = name.rsplit("/", 2) if name.count("/") > 1 else (name, "", "")
    is_given = SeriesName(place.axis, f"{place.prefix}{_SAMPLES}/{role}/{rank}") in facts.history.series
    return name.startswith("consumed/") or (bool(whole) and is_given)


def are_parts_of(producers: Sequence[Producer], values: Series, step: int, last: int) -> bool:
    """Whether a metric changed as the mean over all producers' samples did: else it is of something else.

    Args:
        producers: all of them; those without values of the metric tell nothing.
        values: of the metric.
        step: the first one with the new level.
        last: the last one that is looked at.
    """
    known, before, after = _windows(producers, step, last)
    whole = _change(known, before, after)
    old, new = ([values[at] for at in steps if at in values] for steps in (before, after))
    if len(known) < 2 or whole is None or not old or not new:
        return False
    effect = mean(new) - mean(old)
    return effect != 0 and abs(whole - effect) <= _ALIKE * abs(effect)


def responsible_for(producers: Sequence[Producer], step: int, last: int) -> Responsible | None:
    """Return by whose samples a metric that they are parts of changed at `step`; None where it is nobody's."""
    return next((one for one in _parts(producers, step, last) if one.part >= CAUSED), None)


def mix_of(producers: Sequence[Producer], step: int, last: int) -> Mix | None:
    """Return of whom samples are, where a metric that they are parts of changed at `step` by that; else None.

    Without one of them it would not have changed, either; but nobody's samples became worse. Who gives samples for the
    first time, or none from then on, is not meant.
    """
    known, before, after = _windows(producers, step, last)
    whole = _change(known, before, after)
    # No change, or too few steps to tell one.
    if not whole or any(one.values.keys().isdisjoint(steps) for one in known for steps in (before, after)):
        return None
    old, new = _shares(known, before), _shares(known, after)
    # What each makes now, weighted by how much each gave before.
    without = sum(share * _mean(one.values, after) for one, share in zip(known, old, strict=True))
    part = (mean(_means(known, after)) - without) / whole
    shares = sorted(zip(known, old, new, strict=True), key=lambda one: -abs(one[2] - one[1]))
    return Mix(shares, min(part, 1.0), without) if part >= CAUSED else None


def _shares(known: Sequence[Producer], steps: Sequence[int]) -> list[float]:
    given = [_given(one, steps) for one in known]
    # 1: where nobody gave any, all shares are 0.
    return [one / max(sum(given), 1.0) for one in given]


def mostly_by(producers: Sequence[Producer], step: int, last: int) -> Responsible | None:
    """Return by whose samples more than half of the change came; None where nobody's were that much."""
    most = max(_parts(producers, step, last), key=lambda one: one.part, default=None)
    return most if most is not None and most.part > _LARGEST_PART else None


def _parts(producers: Sequence[Producer], step: int, last: int) -> Iterator[Responsible]:
    """Yield what part of the change is gone without each of whom to leave out."""
    known, before, after = _windows(producers, step, last)
    whole = _change(known, before, after)
    for some in _candidates(known, after) if whole else ():
        others = [one for one in known if one not in some]
        left = _change(others, before, after)
        if left is not None and whole is not None:
            told = sorted(some, key=lambda one: -_given(one, after))
            # Of the change of all, what the mean of the others did not do.
            yield Responsible(told, min(max(1 - left / whole, 0.0), 1.0), mean(_means(others, after)))


def _windows(producers: Sequence[Producer], step: int, last: int) -> tuple[list[Producer], list[int], list[int]]:
    """Return who has values of the metric, and the steps before and after the change that anybody has any in."""
    known = [one for one in producers if one.values]
    before = sorted({at for one in known for at in one.values if at < step})[-USUAL:]
    return known, before, sorted({at for one in known for at in one.values if step <= at <= last})


def _candidates(known: Sequence[Producer], after: Sequence[int]) -> list[Collection[Producer]]:
    """Return whom to leave out: one after the other, then all whose samples are older than those of the others."""
    single: list[Collection[Producer]] = [[one] for one in sorted(known, key=lambda one: -_given(one, after))]
    behind = {one.name: _mean(one.staleness, after) for one in known}
    usual = sorted(behind.values())[(len(behind) - 1) // 2]
    # A version behind the one in the middle (the lower of two): what differs by less are turns in a queue.
    stale = [one for one in known if behind[one.name] >= usual + 1]
    return [*single, stale] if 1 < len(stale) <= _LARGEST_PART * len(known) else single


def _given(one: Producer, steps: Sequence[int]) -> float:
    return sum(one.samples.get(step, 0.0) for step in steps)


def _mean(series: Series, steps: Sequence[int]) -> float:
    found = [series[step] for step in steps if step in series]
    return mean(found) if found else 0.0


def _change(some: Sequence[Producer], before: Sequence[int], after: Sequence[int]) -> float | None:
    """Return by how much the mean over some producers' samples rose; None where too few steps have any."""
    old, new = _means(some, before), _means(some, after)
    return mean(new) - mean(old) if min(len(old), len(new)) >= _FEW else None


def _means(some: Sequence[Producer], steps: Sequence[int]) -> list[float]:
    """Return the mean over some producers' samples, of each step that has any."""
    found = []
    for step in steps:
        given = [(one.samples.get(step, 0.0), one.values[step]) for one in some if step in one.values]
        number = sum(samples for samples, _ in given)
        if number > 0:
            found.append(sum(samples * value for samples, value in given) / number)
    return found
