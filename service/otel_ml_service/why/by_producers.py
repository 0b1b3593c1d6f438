"""A metric's change in words, where it came by the samples of some producers: who, what they served, since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from otel_ml.quantities import percent, seconds
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import listed, number, plural, steps_text
from otel_ml_service.why.answer import Evidence, Look
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.mean import mean
from otel_ml_service.why.producers import USUAL, Mix, Producer, Responsible, Series
from otel_ml_service.why.weight_pulls import Pull, pull_of

__all__ = ["ByProducers", "told", "told_mix"]

_MOSTLY = 0.8
"""Part of the steps in which one version makes it the one that was served."""

_NAMED = 2
"""Producers that are named where the mix of all changed: the one that gave more, and the one that gave less."""


class ByProducers(NamedTuple):
    """Sentences and evidence.

    Attributes:
        why, then: the second and the third sentence.
    """

    why: str
    then: str
    evidence: list[Evidence]
    look_at: list[Look]


class _Served(NamedTuple):
    """What a producer made samples with.

    Attributes:
        since: the first step that used them.
        text: empty where it was nothing special.
        version: where it was one.
    """

    since: int
    text: str
    version: float | None = None


def told(facts: RunFacts, place: Place, metric: str, step: int, last: int, found: Responsible) -> ByProducers:
    """Return what is told of a change at `step` that came by the samples of `found`."""
    reasons: list[str] = []
    evidence: list[Evidence] = []
    looks: list[Look] = []
    where = ""
    for one in found.producers:
        served = _served(one, place.axis, step, last)
        pull = pull_of(facts, place, one, served.version, served.since, last)
        reasons.append(_reason(one, step, last, served, pull))
        evidence += _evidence(facts, place, one, step, last, pull)
        looks += _looks(one, pull)
        # The first one that is known: a sentence names one place to look at.
        where = where or _where(facts, place, pull)
    them = "its samples" if len(found.producers) == 1 else "their samples"
    first = f"; look at {where}" if where else ""
    return ByProducers(
        f"Caused: {listed(reasons)}; {percent(found.part)} of it goes with {them}.",
        f"Without {them} {metric} would be {measured(metric, found.without)}{first}.",
        evidence,
        looks,
    )


def told_mix(facts: RunFacts, place: Place, metric: str, step: int, last: int, mix: Mix) -> ByProducers:
    """Return what is told of a change at `step` that came by how many samples each producer gave."""
    most = mix.shares[:_NAMED]
    shares = listed([f"{new:.0%} of the samples are of {one.name} instead of {old:.0%}" for one, old, new in most])
    return ByProducers(
        f"Caused: {shares}; {mix.part:.0%} of it goes with that mix, not with what each of them makes.",
        f"With the former shares {metric} would be {number(mix.without)}.",
        [one for producer, *_ in most for one in _evidence(facts, place, producer, step, last, None)],
        [],
    )


def _reason(one: Producer, step: int, last: int, served: _Served, pull: Pull | None) -> str:
    old, new = _mean(one.values, step - USUAL, step - 1), _mean(one.values, step, last)
    # Three forms: no samples since the change, none before it, or values of both.
    values = "gave no more samples" if new is None else f"had {number(new)}"
    values = values if old is None or new is None else f"{values} instead of {number(old)}"
    text = f"{one.name} {values}" if new is None else f"the samples of {one.name} {values}"
    if not served.text:
        return text
    pulled = f" and its {pull.span.name} took {_took(pull)}" if pull is not None and pull.is_long else ""
    return f"{text}: {served.text}{pulled}"


def _took(pull: Pull) -> str:
    usual = "" if pull.usual_s is None else f" (usually {seconds(pull.usual_s)})"
    return f"{seconds(pull.seconds)}{usual}"


def _served(one: Producer, axis: str, step: int, last: int) -> _Served:
    """Return which version a producer served, or how far it was behind, where that is more than before."""
    old, new = _mean(one.staleness, step - USUAL, step - 1), _mean(one.staleness, step, last)
    # Less than a version more is what a queue does.
    if new is None or new < (old or 0.0) + 1:
        return _Served(step, "")
    versions = Counter(version for at, version in one.version.items() if step <= at <= last)
    # Staleness may be recorded without versions: then none is counted, and 0 steps have one.
    [(version, steps)] = versions.most_common(1) or [(0.0, 0)]
    if not steps or steps < _MOSTLY * versions.total():
        before = "" if old is None else f" instead of {old:.1f}"
        return _Served(step, f"it was {new:.1f} versions behind{before}")
    since = _since(one.version, version, step)
    return _Served(since, f"it served version {version:.0f} since {steps_text(since, since, axis)}", version)


def _since(versions: Series, version: float, step: int) -> int:
    """Return the first of the steps up to `step`, or after it, that had nothing but a version."""
    # There is one, since the version is one of those that were counted from `step` on.
    first = min(at for at, value in versions.items() if at >= step and value == version)
    for at in sorted((at for at in versions if at < first), reverse=True):
        if versions[at] != version:
            break
        first = at
    return first


def _evidence(
    facts: RunFacts, place: Place, one: Producer, step: int, last: int, pull: Pull | None
) -> Iterator[Evidence]:
    given = sum(samples for at, samples in one.samples.items() if step <= at <= last)
    steps, are = steps_text(step, last, place.axis), "is" if round(given) == 1 else "are"
    yield Evidence("link", step, f"{steps} consumed {plural(round(given), 'sample')} that {are} linked to {one.name}")
    if pull is not None:
        at = f" at {where}" if (where := _where(facts, place, pull)) else ""
        text = f"{one.name} took version {pull.version}{at}: {pull.span.name}, {_took(pull)}"
        yield Evidence("link", pull.span.step, text)


def _where(facts: RunFacts, place: Place, pull: Pull | None) -> str:
    """Return at which step of its own a producer pulled, and beside which one of `place`; nothing where it has none."""
    if pull is None or pull.span.step is None:
        return ""
    beside = facts.beside(place, pull.span.end_ns / 1e9)
    of_place = "" if beside is None or pull.span.axis == place.axis else f" (beside {place.axis} {beside:,})"
    return f"{pull.span.axis} {pull.span.step:,}{of_place}"


def _looks(one: Producer, pull: Pull | None) -> list[Look]:
    if pull is None or pull.span.step is None or pull.span.axis is None:
        return []
    return [Look(pull.span.axis, pull.span.step, f"span {pull.span.span_id} of {one.name}, {pull.span.name}")]


def _mean(series: Series, first: int, last: int) -> float | None:
    found: Sequence[float] = [value for at, value in series.items() if first <= at <= last]
    return mean(found) if found else None
