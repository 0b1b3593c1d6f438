"""Stale producers, found as steps close and published in the run: series, and sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from otel_ml.wire.attributes import RESERVED_PREFIX
from otel_ml.wire.published_name import published_name
from otel_ml_service.aggregation.output import Output
from otel_ml_service.aggregation.step_streams import Attempt, StepStream
from otel_ml_service.findings.stale_producers import Consumed, Stale, StaleProducers

__all__ = ["StaleSamples"]

_SAMPLES, _STALENESS = "consumed/samples", "consumed/staleness"


class StaleSamples:
    """Owned by one engine. After a restart of the service the evidence is gathered anew."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._watches: dict[tuple[str, str], tuple[int, StaleProducers]] = {}

    def look(self, attempt: Attempt, step: int, values: Mapping[str, float]) -> dict[str, float]:
        """Look at what a step consumed, by the published values of its row; return what belongs into the row."""
        stream = attempt.stream
        consumed = _consumed(stream, values)
        ordinal, watch = self._watches.get((stream.role, stream.axis), (attempt.ordinal, None))
        # An older attempt may still close steps: they say nothing of who is stale now.
        if not consumed or attempt.ordinal < ordinal:
            return {}
        if watch is None or attempt.ordinal > ordinal:
            watch = StaleProducers()
            self._watches[stream.role, stream.axis] = attempt.ordinal, watch
        change = watch.step(step, consumed)
        if change is not None:
            self._say(stream, change)
        return dict(_values(stream, change, watch.stale))

    def _say(self, stream: StepStream, stale: Stale) -> None:
        who = f"Rank {stale.rank} of role {stale.role!r}"
        if stale.is_over:
            said = (
                f"{who} is no longer stale for role {stream.role!r}: from {stream.axis} {stale.since} to {stale.last}."
            )
        else:
            said = (
                f"{who} is stale since {stream.axis} {stale.since}: its samples are {stale.behind:.1f} versions "
                f"behind, those of the others {stale.others:.1f}. Without it role {stream.role!r} would train on "
                f"samples that are {stale.excess:.1f} versions newer."
            )
        self._output.say("stale-samples", said)


def _consumed(stream: StepStream, values: Mapping[str, float]) -> dict[tuple[str, int], Consumed]:
    """Return what a row says of each producer; nothing, and at once, where it says nothing of any."""
    found: dict[tuple[str, int], Consumed] = {}
    # A run of `init(prefix="")` has names without the role.
    for with_role in (True, False):
        total = published_name(stream.role, stream.axis, _STALENESS, with_role=with_role)
        if total not in values:
            continue
        samples = published_name(stream.role, stream.axis, _SAMPLES, with_role=with_role)
        for name, behind in values.items():
            who = name.removeprefix(f"{total}/")
            role, _, rank = who.rpartition("/")
            number = values.get(f"{samples}/{who}", 0.0)
            # A program may record such names itself: only `consumed()` is known to count, from one sample on.
            if role and who != name and rank.isdecimal() and 0 < number < math.inf and math.isfinite(behind):
                found[role, int(rank)] = Consumed(number, behind)
    return found


def _values(stream: StepStream, change: Stale | None, stale: Stale | None) -> Iterator[tuple[str, float]]:
    """Yield the series while a producer is stale, and once more, with 0, when none is."""
    name = published_name(stream.role, stream.axis, f"{RESERVED_PREFIX}stale/")
    if change is not None and change.is_over:
        yield f"{name}{change.role}", 0.0
    elif stale is not None:
        yield f"{name}{stale.role}", stale.excess
        yield f"{name}{stale.role}/rank", float(stale.rank)
