"""What else changed in a run at about the same time: for an answer that names no more than a coincidence."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import pairwise

from otel_ml_service.findings.change_points import LEAST, change_points
from otel_ml_service.findings.units import measured
from otel_ml_service.findings.wording import listed
from otel_ml_service.why.answer import Evidence
from otel_ml_service.why.facts import Place, RunFacts
from otel_ml_service.why.finding_text import what_was

__all__ = [
    "NEAR",
    "changes_near",
    "eligible",
    "first_not_finite",
    "is_looked_at",
    "is_of_time",
    "may_be_followed",
]

NEAR = 3
"""Steps within which two changes are at the same time."""

_OF_TIME = re.compile(
    r"(per[_ ]?s(ec|econd)?\b|/s\b|throughput|goodput|mfu|token_rate|wall|elapsed|(?<![a-z])eta\b)", re.IGNORECASE
)
"""Names of what is measured by the clock: of a slow step they are another word, not a cause."""

_FURTHER = re.compile(r"/(min|max|std|p\d+(\.\d+)?|count|sum|argmax|argmin|first|last)$")

_BEFORE, _AFTER = 96, 48
"""Steps around the change in question in which others are looked for: what is a level of many is seen in these."""

_MOST = 512
"""Series that are looked at: of more, those that come first."""


def changes_near(
    facts: RunFacts, place: Place, step: int, *, but: str = "", is_own_known: bool = False
) -> list[Evidence]:
    """Return what changed within three steps of `step`, or at the same time on another axis.

    Args:
        facts: of the run.
        place: whose step it is.
        step: where the change in question begins.
        but: metric that is in question itself.
        is_own_known: whether what was found of the place itself is left out.
    """
    return [
        *_restarts(facts, place, step),
        *_events(facts, place, step),
        *_parameters(facts, place, step),
        *_findings(facts, place, step, is_own_known=is_own_known),
        *_metrics(facts, place, step, but),
    ]


def _window(facts: RunFacts, place: Place, step: int) -> tuple[float, float]:
    """Return the seconds since the epoch in which the steps around `step` were done."""
    times = facts.times.get(place, {})
    # Of other axes what lies between these two rows was done in the same seven steps.
    before = [time for at, time in times.items() if at < step - NEAR]
    after = [time for at, time in times.items() if at > step + NEAR]
    return max(before, default=-math.inf), min(after, default=math.inf)


def _same_time(facts: RunFacts, place: Place, step: int, other: Place, at: int) -> bool:
    if other.axis == place.axis:
        return abs(at - step) <= NEAR
    begin, end = _window(facts, place, step)
    # In the first steps nothing lies before, and all that was ever done would be at the same time.
    return begin <= facts.times.get(other, {}).get(at, -math.inf) <= end and math.isfinite(begin)


def _restarts(facts: RunFacts, place: Place, step: int) -> Iterator[Evidence]:
    for other, found in facts.restarts.items():
        for at, attempt in found:
            if _same_time(facts, place, step, other, at):
                yield Evidence(
                    "restart", at, f"the job was restarted (attempt {attempt + 1}) at {_at(facts, place, other, at)}"
                )


def _events(facts: RunFacts, place: Place, step: int) -> Iterator[Evidence]:
    for event in facts.events:
        other = facts.place_of(event.axis, event.name)
        if event.step is not None and _same_time(facts, place, step, other, event.step):
            text = " ".join(event.text.split())
            shown = text if len(text) <= 60 else f"{text[:60]}…"
            says = f": {shown}" if text not in {"", "{}"} else ""
            yield Evidence("event", event.step, f"event {event.name} at {_at(facts, place, other, event.step)}{says}")


def _parameters(facts: RunFacts, place: Place, step: int) -> Iterator[Evidence]:
    begin, end = _window(facts, place, step)
    # The first ones are those that the run began with.
    for time, names in facts.params[1:]:
        # No names: only otel_ml's own parameters were set, which `RunFacts.add` leaves out.
        if names and math.isfinite(begin) and begin <= time <= end:
            yield Evidence("parameter", None, f"parameters were set: {listed(names)}")


def _findings(facts: RunFacts, place: Place, step: int, *, is_own_known: bool) -> Iterator[Evidence]:
    for slow in facts.findings:
        is_own = slow.place == place.prefix and slow.axis == place.axis
        if is_own and is_own_known:
            continue
        other = place if is_own else facts.place_of(slow.axis, slow.place)
        for at, when in ((slow.since, "from"), (slow.last, "up to")):
            # The last step of a finding that lasts is only the newest one that was looked at.
            if (when == "from" or slow.is_over) and _same_time(facts, place, step, other, at):
                of_role = "" if is_own else f" of {other.role}"
                yield Evidence("finding", at, f"{what_was(slow, of_role)} {when} {_at(facts, place, other, at)}")


def _metrics(facts: RunFacts, place: Place, step: int, but: str) -> Iterator[Evidence]:
    looked_at = 0
    for other in facts.times:
        # By name, which no two series of a place share, so dicts are never compared.
        for name, values in sorted(facts.series(other)):
            if name == but or _is_further_of(name, but) or not is_looked_at(name):
                continue
            looked_at += 1
            if looked_at > _MOST:
                return
            for at, text in _changed(name, _around(facts, place, step, other, values)):
                if _same_time(facts, place, step, other, at):
                    yield Evidence("change", at, f"{name} {text} at {_at(facts, place, other, at)}")
                    # One change of a metric near enough tells that it changed.
                    break


def is_looked_at(name: str) -> bool:
    """Whether a metric may be a cause: no further reduction of one, and not measured by the clock.

    Examples:
        >>> is_looked_at("staleness"), is_looked_at("staleness/max"), is_looked_at("tokens_per_second")
        (True, False, False)
    """
    return not is_of_time(name) and _FURTHER.search(name) is None


def may_be_followed(name: str) -> bool:
    """Whether the time of a step may follow a metric: the tokens of all ranks, or of the one with most, do count.

    Examples:
        >>> may_be_followed("tokens"), may_be_followed("tokens/max"), may_be_followed("tokens/argmax")
        (True, True, False)
    """
    return (not is_of_time(name) and re.search(r"/(max|sum)$", name) is not None) or is_looked_at(name)


def is_of_time(name: str) -> bool:
    """Whether a metric is measured by the clock: a throughput, a utilization.

    Examples:
        >>> is_of_time("tokens_per_second"), is_of_time("rl/engine/token_rate"), is_of_time("tokens")
        (True, True, False)
    """
    return _OF_TIME.search(name) is not None


def _is_further_of(name: str, but: str) -> bool:
    base = _FURTHER.sub("", but)
    return bool(but) and (name == base or name.startswith((f"{but}/", f"{base}/")))


def eligible(facts: RunFacts) -> int:
    """Return how many metrics of a run are looked at for changes."""
    found = sum(is_looked_at(name) for place in facts.times for name, _ in facts.series(place))
    return min(found, _MOST)


def _around(facts: RunFacts, place: Place, step: int, other: Place, values: Mapping[int, float]) -> Mapping[int, float]:
    """Return a metric's values at the time of `step`: enough to tell a change there, and no more."""
    steps = sorted(values)
    if other.axis == place.axis:
        at = bisect_left(steps, step)
    else:
        then = facts.times.get(place, {}).get(step, math.inf)
        times = facts.times.get(other, {})
        at = bisect_left(steps, then, key=lambda one: times.get(one, -math.inf))
    return {one: values[one] for one in steps[max(at - _BEFORE, 0) : at + _AFTER]}


def _at(facts: RunFacts, place: Place, other: Place, step: int) -> str:
    """Return which step it is, and beside which one of the axis in question it was done."""
    beside = None if other.axis == place.axis else facts.beside(place, facts.times.get(other, {}).get(step, math.inf))
    return f"{other.axis} {step:,}" + ("" if beside is None else f" (beside {place.axis} {beside:,})")


def _changed(name: str, values: Mapping[int, float]) -> Iterator[tuple[int, str]]:
    """Yield where a metric changes and how: a value that is set (a learning rate, a version), or a level of many."""
    broken = first_not_finite(values)
    if broken is not None:
        yield broken, f"became {values[broken]}"
    set_at = [(before, step) for before, step in pairwise(values) if values[before] != values[step]]
    # What stands still in nine steps of ten is set by somebody: each change of it counts, however small.
    if len(set_at) * 10 <= len(values):
        for before, step in set_at:
            if math.isfinite(values[step]):
                yield step, f"went from {measured(name, values[before])} to {measured(name, values[step])}"
    elif len(values) >= LEAST:
        for change in change_points(list(values), list(values.values())).changes:
            old, new = measured(name, change.before), measured(name, change.after)
            # Two levels that read the same would be told as "went from 0.1 to 0.1".
            if old != new:
                yield change.step, f"went from {old} to {new}"


def first_not_finite(values: Mapping[int, float]) -> int | None:
    """Return the first step with a NaN or an infinity after a finite value; None where there is none."""
    # Of nearly all metrics, which may be long. A sum that overflows is looked at value by value, and has none either.
    if math.isfinite(sum(values.values(), 0.0)):
        return None
    steps = sorted(values)
    first = next((step for step in steps if math.isfinite(values[step])), None)
    if first is None:
        return None
    return next((step for step in steps if step > first and not math.isfinite(values[step])), None)
